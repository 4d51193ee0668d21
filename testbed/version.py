"""Which testbed this is: two of the same version and the same sources do the same."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import version
from pathlib import Path

from testbed.cache import content_key

__all__ = ["identity"]


@cache
def identity() -> str:
    """Return the version, and eight digits that stand for all its files, images/ included."""
    root = Path(__file__).parent
    parts: list[str | Path] = []
    for folder, folders, names in os.walk(root, followlinks=True):  # images/ is a link in a checkout
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for name in sorted(name for name in names if not name.startswith(".")):
            file = Path(folder, name)
            parts += [str(file.relative_to(root)), file]
    return f"{version('testbed')} ({content_key(*parts)[:8]})"
