"""What a corpus keeps of its campaigns: a file for each, written anew as it grows, so that a kill loses little.

Layout below the corpus::

    campaigns/BEGUN-PID.json    a Summary with the schema version of results
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from testbed.errors import UsageError
from testbed.fuzzing.campaign import Summary
from testbed.result import SCHEMA_VERSION
from testbed.run_directory import explained

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["has_campaigns", "keep_campaign", "load_campaigns"]

_FOLDER = "campaigns"


class _Versioned(msgspec.Struct):
    schema_version: int


def keep_campaign(corpus: Path, summary: Summary) -> None:
    """Write what the campaign has come to so far, whole or not at all.

    :raise HostError: the corpus cannot be written to.
    """
    folder = corpus / _FOLDER
    name = f"{summary.begun.replace(':', '')}-{os.getpid()}.json"
    document = {"schema_version": SCHEMA_VERSION, **msgspec.structs.asdict(summary)}
    with explained(corpus):
        folder.mkdir(exist_ok=True)
        partial = folder / f".{name}.partial"
        partial.write_bytes(msgspec.json.encode(document))
        partial.replace(folder / name)


def has_campaigns(path: Path) -> bool:
    """Whether a directory is a corpus that campaigns were run on."""
    return (path / _FOLDER).is_dir()


def load_campaigns(corpus: Path) -> list[Summary]:
    """Return the campaigns of a corpus, the oldest first.

    :raise UsageError: there is none, or one is of another version.
    """
    found = [_load(file) for file in sorted((corpus / _FOLDER).glob("*.json"))]
    if not found:
        raise UsageError(
            f"expected campaigns in {corpus / _FOLDER}, seen none", "name a corpus of testbed fuzz"
        )
    return found


def _load(file: Path) -> Summary:
    try:
        data = file.read_bytes()
        version = msgspec.json.decode(data, type=_Versioned).schema_version
        if version != SCHEMA_VERSION:
            raise UsageError(
                f"{file} is a campaign of schema version {version}, this testbed reads {SCHEMA_VERSION}",
                "use the testbed that wrote it",
            )
        return msgspec.json.decode(data, type=Summary)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"expected a campaign in {file}: {error}", "remove it, or name another corpus"
        ) from error
