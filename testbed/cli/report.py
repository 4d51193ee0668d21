"""``testbed report DIR [DIR]``: runs as a page to look at, a picture, or a trace for Perfetto."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.cli.manual import manual
from testbed.diff import parting
from testbed.errors import HostError, UsageError
from testbed.fuzzing.records import has_campaigns, load_campaigns
from testbed.recorded import Recorded, load_recorded, load_several
from testbed.report.perfetto import perfetto_trace

__all__ = ["command"]

_NAMES = {"html": "report.html", "perfetto": "report.perfetto.json", "png": "report.png"}


@click.command(
    "report",
    epilog=manual(
        "testbed report result",
        "testbed report stock repaired --out both.html",
        "testbed report fuzz-igb",
        "testbed report result --perfetto",
        "testbed report stock repaired --png --out difference.png",
        _0="the file is written",
    ),
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("other", required=False, type=click.Path(path_type=Path))
@click.option("--html", "form", flag_value="html", default=True, help="Write a page (the default).")
@click.option("--perfetto", "form", flag_value="perfetto", help="Write a trace that ui.perfetto.dev opens.")
@click.option("--png", "form", flag_value="png", help="Write a picture to attach to a mail.")
@click.option("--out", type=click.Path(path_type=Path), help="The file; by default one in DIRECTORY.")
def command(*, directory: Path, other: Path | None, form: str, out: Path | None) -> None:
    """Write one file, which needs no network, of what --out kept in DIRECTORY, and print its name.

    A run gets its timeline, a matrix its grid of verdicts and the timelines of its runs, a corpus of `testbed fuzz` its
    growth and findings. With OTHER, the timelines of two runs stand above each other, and the place where they part is
    marked.
    """
    file = out or directory / _NAMES[form]
    if has_campaigns(directory) and other is None:
        _write(file, _campaign(directory, form))
        return
    runs = [load_recorded(directory), load_recorded(other)] if other else load_several(directory)
    match form:
        case "perfetto":
            data = perfetto_trace(_drawable(runs)).encode()
        case "png":
            data = _picture(_drawable(runs))
        case _:
            data = _page(runs, pair=other is not None).encode()
    _write(file, data)


def _write(file: Path, data: bytes) -> None:
    partial = file.with_name(f".{file.name}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(file)
    except OSError as error:
        raise HostError(f"cannot write {file}: {error.strerror}", "choose another --out") from error
    click.echo(file)


def _campaign(corpus: Path, form: str) -> bytes:
    if form != "html":
        raise UsageError(
            f"expected a run for --{form}, seen a corpus", f"name a finding below {corpus}/findings"
        )
    from testbed.report.growth import campaign_page

    return campaign_page(load_campaigns(corpus)).encode()


def _page(runs: list[Recorded], *, pair: bool) -> str:
    from testbed.report.page import matrix_page, pair_page, run_page

    if pair:
        a, b = _drawable(runs)
        return pair_page(a, b, parting(a.trace, b.trace) if a.trace and b.trace else None)
    return matrix_page(runs) if runs[0].place else run_page(runs[0])


def _picture(runs: list[Recorded]) -> bytes:
    from testbed.report.picture import picture
    from testbed.report.strip import Strip

    strips = [Strip(run.result, run.trace) for run in runs if run.trace]
    if len(strips) == 2:
        a, b = strips
        found = parting(a.trace, b.trace)
        rows = (found.a.row, found.b.row) if found else (None, None)
        strips = [Strip(a.result, a.trace, "A", rows[0]), Strip(b.result, b.trace, "B", rows[1])]
    return picture(strips)


def _drawable(runs: list[Recorded]) -> list[Recorded]:
    """Return the runs, of each of which there is something to draw.

    :raise UsageError: they are those of a matrix, or one left no trace.
    """
    if runs[0].place:
        raise UsageError(
            f"expected one run, seen the {len(runs)} runs of a matrix", f"name one, as in {runs[0].path}"
        )
    for run in runs:
        if run.trace is None:
            raise UsageError(
                f"the run in {run.path} left no trace: {run.result.error}", "name a run that came to its end"
            )
    return runs
