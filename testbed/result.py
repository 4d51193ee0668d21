"""The result of one run: what ``--json`` prints and result.json keeps; all a person sees is made from it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from testbed.errors import UsageError
from testbed.rules.outcome import RuleResult
from testbed.trace.counters import Counters

__all__ = [
    "RESULT_NAME",
    "SCHEMA_VERSION",
    "TRACE_NAME",
    "Judgement",
    "KernelRecord",
    "Result",
    "Timings",
    "TraceRecord",
    "Verdict",
    "decode_result",
    "encode_result",
    "encode_results",
    "judge_run",
    "load_result",
    "save_result",
    "trace_path",
]

SCHEMA_VERSION = 1
RESULT_NAME = "result.json"
TRACE_NAME = "trace.npy"
Verdict: TypeAlias = Literal["pass", "fail", "broken", "unsupported"]
_EXIT_STATUS: dict[Verdict, int] = {"pass": 0, "fail": 1, "broken": 3, "unsupported": 4}
_BISECT_STATUS: dict[Verdict, int] = {"pass": 0, "fail": 1, "broken": 125, "unsupported": 125}


class KernelRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kernel that ran: its name, exact release and package version, and what was changed in it.

    ``asked`` is the KERNEL that asks for it, ``contents`` what stands for the content of each change in that order.
    """

    name: str
    release: str = ""
    package: str = ""
    variants: list[str] = msgspec.field(default_factory=list)
    patches: list[str] = msgspec.field(default_factory=list)
    asked: str = ""
    contents: list[str] = msgspec.field(default_factory=list)


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size of the trace, what it lacks, and :func:`testbed.trace.sequence_digest` of it."""

    events: int
    lost: int
    sequence_digest: str


class Timings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds of wall time; 0 for what did not happen: a run that restores a snapshot does not boot."""

    boot_s: float = 0.0
    restore_s: float = 0.0
    run_s: float = 0.0
    total_s: float = 0.0


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run.

    ``error`` says why a run is broken or unsupported, and names lost records beside a failure; else it is
    None. ``counters`` and ``trace`` are None when the run left no trace. ``program`` is the whole scenario as
    its file would say it, so that the run can be repeated from the result alone. ``reproduce`` is the exact
    command.
    """

    verdict: Verdict
    kernel: KernelRecord
    nic: str
    driver: str
    scenario: str
    clock: Literal["virtual", "real"]
    accelerator: str
    schema_version: int = SCHEMA_VERSION
    error: str | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    rules: list[RuleResult] = msgspec.field(default_factory=list)
    counters: Counters | None = None
    trace: TraceRecord | None = None
    timings: Timings = msgspec.field(default_factory=Timings)
    reproduce: str = ""
    program: dict[str, Any] = msgspec.field(default_factory=dict)

    def exit_status(self, *, bisect: bool = False) -> int:
        """Return what ``testbed run`` exits with; with ``bisect``, what ``git bisect run`` understands."""
        return (_BISECT_STATUS if bisect else _EXIT_STATUS)[self.verdict]

    def rule(self, rule_id: str) -> RuleResult | None:
        """Return the line of one rule, or None when it was not judged."""
        return next((rule for rule in self.rules if rule.id == rule_id), None)


class Judgement(msgspec.Struct, frozen=True):
    """The verdict of a run that left a trace, and the ``error`` that goes with it."""

    verdict: Verdict
    error: str | None = None


def judge_run(rules: Sequence[RuleResult], must_exercise: Iterable[str], lost: int) -> Judgement:
    """Return the verdict that outcomes and lost records give.

    A violation is a proof that nothing missing can undo: fail, with a loss named. Without one, lost records
    or a rule of ``must_exercise`` that was not exercised, or not judged, make the run broken: what it did not
    see, it cannot vouch for. A caller that judges only some rules passes only those of ``must_exercise`` that
    are among them.

    :param lost: records of the trace that the guest could not keep.
    """
    loss = f"{lost} records of the trace were lost" if lost else None
    if any(rule.outcome == "violated" for rule in rules):
        return Judgement("fail", loss)
    if loss:
        return Judgement("broken", f"{loss}, so nothing can be said of the rules")
    exercised = {rule.id for rule in rules if rule.outcome != "not-exercised"}
    missed = [rule_id for rule_id in must_exercise if rule_id not in exercised]
    if missed:
        why = {rule.id: f" ({rule.message})" for rule in rules}
        named = ", ".join(f"{rule_id}{why.get(rule_id, ' (not judged)')}" for rule_id in missed)
        return Judgement("broken", f"the scenario must exercise {named}")
    return Judgement("pass")


def encode_result(result: Result) -> bytes:
    """Return the result as one JSON document with a line end."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def encode_results(results: Sequence[Result]) -> bytes:
    """Return the results of ``--runs N`` as one JSON document with a line end."""
    document = {"schema_version": SCHEMA_VERSION, "runs": list(results)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def decode_result(data: bytes, name: str) -> Result:
    """Return the result that a JSON document holds.

    :param name: where it came from, for the message.
    :raise UsageError: it is no result, or one of another schema version.
    """
    remedy = "name a directory that 'testbed run --out' made, or its result.json"
    try:
        version = msgspec.json.decode(data, type=_Version).schema_version
        if version != SCHEMA_VERSION:
            raise UsageError(
                f"{name} is a result of schema version {version}, this testbed reads {SCHEMA_VERSION}",
                "use the testbed that wrote it",
            )
        return msgspec.json.decode(data, type=Result)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"expected the result of one run in {name}: {error}", remedy) from error


class _Version(msgspec.Struct):
    schema_version: int


def load_result(path: Path) -> Result:
    """Return the result in ``path``: an ``--out`` directory or its result.json.

    :raise UsageError: there is none, or it cannot be read.
    """
    file = path / RESULT_NAME if path.is_dir() else path
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {file}: {error.strerror}",
            "name a directory that 'testbed run --out' made, or its result.json",
        ) from error
    return decode_result(data, str(file))


def save_result(directory: Path, result: Result) -> Path:
    """Write the result into an ``--out`` directory, whole or not at all, and return the file."""
    file = directory / RESULT_NAME
    partial = directory / f".{RESULT_NAME}.partial"
    partial.write_bytes(encode_result(result))
    partial.replace(file)
    return file


def trace_path(path: Path) -> Path:
    """Return where the trace lies that belongs to the result in ``path`` (a directory or its result.json)."""
    return (path if path.is_dir() else path.parent) / TRACE_NAME
