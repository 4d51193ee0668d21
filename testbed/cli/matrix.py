"""``testbed matrix``: every run of a product of kernels, variants, NICs, scenarios, clocks and seeds."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from testbed.cli.manual import manual
from testbed.errors import HostError, UsageError
from testbed.matrix import Done, Product, orders, read_product, run_all, shard
from testbed.report import console_for, matrix_junit, matrix_ktap, matrix_table, severity, verdict_of
from testbed.report.progress import MatrixProgress
from testbed.result import SCHEMA_VERSION
from testbed.run_directory import RunDirectory

if TYPE_CHECKING:
    from testbed.order import Order

__all__ = ["command"]

_FACTORS = ("nics", "kernels", "variants", "scenarios", "clocks", "seeds")


@click.command(
    "matrix",
    epilog=manual(
        "testbed matrix --nics igb,e1000e --kernels ,debian:trixie --out nightly",
        "testbed matrix nightly.toml --shard 2/5 --out nightly --junit >nightly.xml",
        "testbed matrix nightly.toml --cluster tcp://head:8786 --out nightly",
        _0="no run violates a rule, and none is broken",
        _1="a rule is violated in a run",
        _3="a run is broken, and no rule is violated",
    ),
)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--nics", help="NICs, with commas between them.")
@click.option("--kernels", help="KERNELs, with commas between them; the newest of Debian by default.")
@click.option(
    "--variants", help="Changes of drivers, with commas between them; an empty one is the stock driver."
)
@click.option("--scenarios", help="Scenarios, with commas between them; the whole library by default.")
@click.option("--clocks", help="virtual, real or both.")
@click.option("--seeds", help="Seeds of jitter: 1,2,7 or 1-50.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Guests at once; TESTBED_GUESTS or 2 by default.")
@click.option("--cluster", metavar="ADDRESS", help="Run on the workers of this Dask scheduler.")
@click.option("--shard", "part", metavar="I/N", help="Run the I-th of N parts only.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Keep every run here, and go on where it was left."
)
@click.option("--json", "form", flag_value="json", help="Print one JSON document.")
@click.option("--ktap", "form", flag_value="ktap", help="Print KTAP, which the kernel's test tools read.")
@click.option("--junit", "form", flag_value="junit", help="Print JUnit's XML, which CI systems read.")
@click.option(
    "--grid", "form", flag_value="grid", default=True, help="Print a grid of verdicts (the default)."
)
def command(
    *,
    file: Path | None,
    jobs: int | None,
    cluster: str | None,
    part: str | None,
    out: Path | None,
    form: str,
    **flags: str | None,
) -> None:
    """Run the product that FILE or the flags describe, and print a grid of verdicts.

    Exits with 1 when a rule is violated in a run, with 3 when one is broken and none violated, else with 0.
    """
    work = orders(_product(file, flags))
    if part:
        work = shard(work, *_part(part))
    with ExitStack() as stack:
        directory = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="testbed-matrix-")))
        stack.enter_context(RunDirectory(directory))
        at_once = None if cluster else jobs or int(os.environ.get("TESTBED_GUESTS", "2"))
        told = stack.enter_context(MatrixProgress(console_for(sys.stderr), len(work), at_once))
        if at_once is None:
            done = _on_cluster(str(cluster), jobs, work, directory, told)
        else:
            done = run_all(work, directory, at_once, told)
    _print(done, form)
    statuses = [each.status for each in done if each.status != 4]
    sys.exit(max(statuses, key=severity, default=0))


def _on_cluster(
    address: str, jobs: int | None, work: list[Order], directory: Path, told: MatrixProgress
) -> list[Done]:
    if jobs:
        raise UsageError(
            "--jobs and --cluster exclude each other", "the cluster's workers say how many at once"
        )
    try:
        from testbed.matrix.cluster import run_on_cluster
    except ImportError as error:
        raise HostError(f"--cluster needs Dask: {error}", "pip install 'testbed[cluster]'") from error
    return run_on_cluster(address, work, directory, told)


def _print(done: list[Done], form: str) -> None:
    match form:
        case "json":
            click.echo(msgspec.json.encode({"schema_version": SCHEMA_VERSION, "runs": done}))
        case "ktap":
            click.echo("\n".join(matrix_ktap(done)))
        case "junit":
            click.echo(matrix_junit(done))
        case _:
            console_for(sys.stdout).print(matrix_table(done), crop=False)
            counts = Counter(map(verdict_of, done))
            told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
            click.echo(f"{len(done)} runs: {told}")


def _product(file: Path | None, flags: dict[str, Any]) -> Product:
    given = {name: flags[name] for name in _FACTORS if flags[name] is not None}
    if file and given:
        raise UsageError(f"{file} and --{next(iter(given))} exclude each other", "give a file or flags")
    if file:
        return read_product(file)
    if "nics" not in given:
        raise UsageError("expected a FILE or at least --nics, seen neither", "see `testbed matrix --help`")
    factors = {name: tuple(text.split(",")) for name, text in given.items() if name != "seeds"}
    for word in factors.get("clocks", ()):
        if word not in {"virtual", "real"}:
            raise UsageError(f"expected virtual or real after --clocks, seen '{word}'", "choose one")
    seeds = {"seeds": _seeds(given["seeds"])} if "seeds" in given else {}
    return Product(**factors, **seeds)  # type: ignore[arg-type]


def _seeds(text: str) -> tuple[int, ...]:
    found: list[int] = []
    try:
        for word in text.split(","):
            first, _, last = word.partition("-")
            found += range(int(first), int(last or first) + 1)
    except ValueError as error:
        raise UsageError(f"expected seeds like 1,2,7 or 1-50, seen '{text}'", "give numbers") from error
    if not found:
        raise UsageError(f"expected at least one seed, seen '{text}'", "give the smaller number first")
    return tuple(found)


def _part(text: str) -> tuple[int, int]:
    number, _, shards = text.partition("/")
    if not (number.isdecimal() and shards.isdecimal() and 1 <= int(number) <= int(shards)):
        raise UsageError(f"expected a part like 2/5 after --shard, seen '{text}'", "count from 1")
    return int(number), int(shards)
