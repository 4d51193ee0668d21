"""Which lines of some modules the inputs of a corpus reach.

    python fuzz/line_coverage.py TARGET.py CORPUS

Prints for each module the lines reached, those there are, and the numbers of those missed. A target is a file with a
function ``one(data: bytes)`` and the names of the modules that it is there for, ``COVERS``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType, FrameType, ModuleType


def lines_of(code: CodeType) -> set[int]:
    """Return the lines of a function's body, and of those inside it; a class body and a module run at import."""
    inner = [constant for constant in code.co_consts if hasattr(constant, "co_lines")]
    found = set().union(*map(lines_of, inner)) if inner else set()
    if code.co_flags & 0x2:  # CO_NEWLOCALS: a function
        found |= {line for _, _, line in code.co_lines() if line and line != code.co_firstlineno}
    return found


def load(path: str) -> ModuleType:
    """Return the target."""
    spec = importlib.util.spec_from_file_location("target", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"expected a target, seen {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["target"] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Run the corpus and print."""
    path, corpus = sys.argv[1:]
    target = load(path)
    files = {str(importlib.import_module(name).__file__): name for name in target.COVERS}
    reached: dict[str, set[int]] = {file: set() for file in files}

    def trace(frame: FrameType, _event: str, _argument: object) -> object:
        seen = reached.get(frame.f_code.co_filename)
        if seen is None:
            return None
        seen.add(frame.f_lineno)
        return trace

    sys.settrace(trace)
    for each in sorted(Path(corpus).iterdir()):
        target.one(each.read_bytes())
    sys.settrace(None)
    sums = [0, 0]
    for file, name in files.items():
        there = lines_of(compile(Path(file).read_text(), file, "exec"))
        got = reached[file] & there
        sums = [sums[0] + len(got), sums[1] + len(there)]
        missed = ", ".join(map(str, sorted(there - got))) or "none"
        print(f"{name}: {len(got)} of {len(there)} lines; missed: {missed}")
    print(f"in all: {sums[0]} of {sums[1]} lines, {100 * sums[0] / max(sums[1], 1):.1f} %")


if __name__ == "__main__":
    main()
