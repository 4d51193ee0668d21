"""What ``--help`` says below the options: examples that can be typed, and what each exit status means."""

from __future__ import annotations

from testbed.errors import HostError, UsageError

__all__ = ["manual"]

_EVERYWHERE = {
    UsageError.exit_status: "wrong usage: an unknown name, a wrong file or value",
    HostError.exit_status: "the environment or the run is broken",
}


def manual(*examples: str, **statuses: str) -> str:
    r"""Return a command's epilog, which click prints as it stands (``\b``).

    :param examples: command lines.
    :param statuses: ``_0="..."`` and so on; 2 and 3 mean the same everywhere and need not be named.
    """
    told = _EVERYWHERE | {int(name.removeprefix("_")): text for name, text in statuses.items()}
    lines = [f"  {status}  {text}" for status, text in sorted(told.items())]
    return "\n\n".join(
        [
            "\b\nExamples:\n" + "\n".join(f"  {each}" for each in examples),
            "\b\nExit status:\n" + "\n".join(lines),
        ]
    )
