"""The guest's image: the same bytes each time it is built, and not too large."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed import image
from testbed.errors import BuildError
from testbed.kernel import resolve

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.toolchain import Toolchain

MOST_BYTES = 8 << 20


def build_in(cache: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Build the image of a guest with igb in a cache of its own."""
    modules = resolve().module_closure(["igb"])
    with monkeypatch.context() as patch:
        patch.setenv("TESTBED_CACHE", str(cache))
        return image.with_modules(image.build(toolchain), modules).read_bytes()


def copied_sources(into: Path) -> Path:
    for room in ("agent", "observer"):
        (into / room).mkdir(parents=True)
        for file in (image.SOURCES / room).glob("*.[ch]"):
            (into / room / file.name).write_bytes(file.read_bytes())
    return into


def test_two_builds_anywhere_give_the_same_bytes_and_at_most_8_mb(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_in(tmp_path / "first", toolchain, monkeypatch)
    monkeypatch.setattr(image, "SOURCES", copied_sources(tmp_path / "other images"))
    second = build_in(tmp_path / "second, elsewhere", toolchain, monkeypatch)
    assert first == second
    assert 1 << 20 < len(first) <= MOST_BYTES


def test_a_warning_of_the_compiler_is_an_error(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = copied_sources(tmp_path / "images")
    with (sources / "agent" / "clock.c").open("a") as clock:
        clock.write("static int nobody_calls_this(void) { return 0; }\n")
    monkeypatch.setattr(image, "SOURCES", sources)
    monkeypatch.setenv("TESTBED_CACHE", str(tmp_path / "cache"))
    with pytest.raises(BuildError, match="nobody_calls_this"):
        image.build(toolchain)
