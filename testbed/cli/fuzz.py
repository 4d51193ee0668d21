"""``testbed fuzz``: let coverage of the guest write scenarios, and the rules say which are wrong."""

from __future__ import annotations

import os
import random
import re
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from testbed import nic as nics
from testbed.cli.changes import KernelOptions
from testbed.cli.manual import manual
from testbed.cli.setup import shown_progress
from testbed.errors import HostError, UsageError
from testbed.fuzzing.campaign import Campaign, plant
from testbed.fuzzing.crew import Processes
from testbed.fuzzing.explain import explain, read_input
from testbed.fuzzing.input_model import decode
from testbed.fuzzing.records import keep_campaign
from testbed.fuzzing.session import Seen
from testbed.fuzzing.worker import Task, request_for
from testbed.kernel import parse
from testbed.result import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.fuzzing.campaign import Growth, Summary
    from testbed.fuzzing.crew import Crew
    from testbed.fuzzing.worker import Word

__all__ = ["command"]

_SEEDS = Path(__file__).parents[1] / "fuzzing" / "seeds" / "minimal"
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MIB_PER_JOB = 900  # two guests and what judges them
_LINE_EVERY_S = 10.0


def _duration(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Return the seconds of 90, 30s, 10m, 8h or 1d."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([smhd]?)", value)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if seconds > 0:
        return seconds
    raise click.BadParameter(f"expected a time above 0 such as 10m, seen {value!r}", ctx, param)


@click.command(
    "fuzz",
    cls=KernelOptions,
    epilog=manual(
        "testbed fuzz --nic igb --time 10m --corpus igb",
        "testbed fuzz --nic igb --kernel tree:linux --seeds library --jobs 2",
        "testbed fuzz --nic igb --time 8h --cluster tcp://head:8786",
        "testbed fuzz --explain input",
        _0="no finding repeats",
        _1="the corpus holds a finding that repeats",
    ),
)
@click.option("--nic", help="The emulated NIC; see `testbed list nics`.")
@click.option(
    "--time", "seconds", callback=_duration, default="10m", help="How long: 30s, 10m, 8h; 10m by default."
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 1000),
    help="Workers over the one corpus; 1 by default, on a cluster one for each core that its workers declare.",
)
@click.option("--cluster", metavar="ADDRESS", help="Fuzz on the workers of this Dask scheduler.")
@click.option(
    "--corpus", type=click.Path(path_type=Path), help="What was learnt, and findings; fuzz-NIC by default."
)
@click.option(
    "--seeds",
    default=str(_SEEDS),
    help="Scenario files to start from, or `library`; two small ones by default.",
)
@click.option("--seed", type=click.IntRange(1, 2**31 - 1), help="Of the random numbers.")
@click.option("--no-coverage", is_flag=True, help="Let nothing guide the search, to compare.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document at the end; events go to stderr."
)
@click.option(
    "--explain",
    "explained",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Print the scenario that an input means, and do nothing else.",
)
def command(  # noqa: PLR0913 - one parameter for each word of the command line
    *,
    nic: str | None,
    kernel: str,
    seconds: float,
    jobs: int | None,
    cluster: str | None,
    corpus: Path | None,
    seeds: str,
    seed: int | None,
    no_coverage: bool,
    as_json: bool,
    explained: Path | None,
) -> None:
    """Look for steps that break a rule, guided by what the guest's driver and the kernel's NAPI execute.

    Exits with 1 when the corpus holds a finding that repeats, from this campaign or an earlier one.
    """
    if explained:
        click.echo(explain(decode(read_input(explained)), "explained"), nl=False)
        return
    if nic is None:
        raise UsageError("expected --nic or --explain, seen neither", "see testbed fuzz --help")
    _check(nic, kernel, None if cluster else jobs or 1)
    directory = (corpus or Path(f"fuzz-{nic}")).absolute()
    count = plant(directory, seeds)
    click.echo(f"testbed: {count} inputs in {directory}", err=True)
    task = Task(
        nic=nic,
        kernel=kernel,
        inputs=str(directory / "inputs"),
        findings=str(directory / "findings"),
        seconds=seconds,
        seed=seed or random.randrange(1, 2**31),  # noqa: S311 - nothing secret
        coverage=not no_coverage,
    )
    with (
        _on_cluster(cluster, task, directory, jobs) if cluster else _here(directory, jobs) as (crew, workers)
    ):
        campaign = Campaign(task, directory, workers, crew)
        summary = campaign.run(_Shown(as_json=as_json), partial(keep_campaign, directory))
    if as_json:
        click.echo(msgspec.json.encode({"schema_version": SCHEMA_VERSION, **msgspec.structs.asdict(summary)}))
    else:
        _print(summary, directory)
    sys.exit(1 if any(finding.confirmed for finding in summary.findings) else 0)


def _check(nic: str, kernel: str, jobs: int | None) -> None:
    """See that names are known; on this machine also build what has to be, before any worker starts.

    :param jobs: workers on this machine; None when others do the work, who build what they need.
    """
    if jobs is None:
        nics.get(nic)
        parse(kernel)
        return
    _check_memory(jobs)
    with shown_progress() as progress:
        request_for(nic, kernel, progress)


@contextmanager
def _here(directory: Path, jobs: int | None) -> Iterator[tuple[Crew, int]]:
    """Lend a crew on this machine, and how many work in it."""
    with Processes(directory) as crew:
        yield crew, jobs or 1


@contextmanager
def _on_cluster(address: str, task: Task, directory: Path, jobs: int | None) -> Iterator[tuple[Crew, int]]:
    """Lend a crew on a cluster, and how many work in it.

    :raise HostError: Dask is missing; or as of :func:`testbed.fuzzing.cluster.shares_on`.
    """
    try:
        from testbed.fuzzing.cluster import shares_on
    except ImportError as error:
        raise HostError(f"--cluster needs Dask: {error}", "pip install 'testbed[cluster]'") from error
    with shares_on(address, task, directory) as crew:
        yield crew, jobs or crew.cores


def _check_memory(jobs: int) -> None:
    """Refuse more workers than there is memory for.

    :raise UsageError: there are.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    free = int(found[1]) >> 10 if found else free
    if jobs * _MIB_PER_JOB > free:
        raise UsageError(
            f"{jobs} workers need about {jobs * _MIB_PER_JOB} MiB, this machine has {free} free",
            f"use --jobs {max(1, free // _MIB_PER_JOB)}",
        )


class _Shown:
    """Tells on stderr how it goes: each finding, and a line every 10 s."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._next_s = time.monotonic()

    def __call__(self, now: Growth, word: Word) -> None:
        fresh = isinstance(word, Seen) and word.finding is not None
        if not fresh and time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _LINE_EVERY_S
        if self._as_json:
            event = {"at": now, **({"finding": word.finding} if isinstance(word, Seen) and fresh else {})}
            click.echo(msgspec.json.encode(event), err=True)
        elif isinstance(word, Seen) and word.finding:
            found = word.finding
            often = (
                f"repeats {found.repeated} of 3"
                if found.confirmed
                else f"repeated only {found.repeated} of 3"
            )
            click.echo(f"{now.seconds:.0f} s: FOUND {found.name}, {often}: {found.message}", err=True)
        else:
            click.echo(
                f"{now.seconds:.0f} s: {now.executions} inputs run, {now.blocks} blocks, {now.features} features",
                err=True,
            )


def _print(summary: Summary, directory: Path) -> None:
    click.echo(
        f"{summary.executions} inputs run in {summary.seconds:.0f} s ({summary.executions_per_s} a second), "
        f"{summary.blocks} basic blocks and {summary.features} features of traces reached; "
        f"{summary.refused} not carried out, {summary.deaths} workers died, {summary.inputs} inputs in the corpus"
    )
    for finding in summary.findings:
        seen = summary.seen.get(finding.name, 0)
        how = "repeats" if finding.confirmed else f"repeated {finding.repeated} of 3"
        click.echo(f"{finding.name}: {how}, seen {seen} times: {finding.message}")
        click.echo(f"  testbed shrink {directory / 'findings' / finding.name}")
    if not summary.findings:
        click.echo("no findings")
