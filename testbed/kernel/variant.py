"""Variants: named changes of a driver, each a semantic patch ``images/variants/DRIVER/NAME.cocci``.

The first comment line of the file says what the variant is. Further lines declare, each where it applies::

    // Puts back: 3b7c13dfdcc2 (igb).
    // Violates: no-spin, carrier-quiet
    // Control: igb/ring-full-exit

that is, the commit whose repair it undoes, the rules of the contract that a run with it must violate, and the variant
that must hold them in the same run; without such a line that is the stock driver.

Every named rule of the semantic patch must match the driver's source; one that does not is an error that names
it, so that no variant is ever half applied.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from testbed.cache import content_key
from testbed.errors import BuildError, Unsupported, UsageError
from testbed.toolchain.host import first_error
from testbed.toolchain.recipe import IMAGES

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.toolchain import Toolchain

__all__ = ["Variant", "find_variant", "known_variants"]

_RULE = re.compile(r"^@\s*([A-Za-z_]\w*)\b[^@]*@", re.MULTILINE)
_VIOLATES = re.compile(r"^// Violates: (.+)$", re.MULTILINE)
_CONTROL = re.compile(r"^// Control: (\S+)$", re.MULTILINE)
_OUT_OF_SIGHT = re.compile(r"^// Out of sight: (.+)$", re.MULTILINE)
#: Where drivers lie that have no folder of their own name below drivers/net/ethernet.
_PLACES = {
    "core": "net/core/dev.c",
    "xsk": "net/xdp/xsk.c",
    "virtio_net": "drivers/net/virtio_net.c",
}
_NOT_A_NAME = frozenset(
    {"depends", "extends", "using", "disable", "script", "initialize", "finalize", "virtual"}
)


@dataclass(frozen=True)
class Variant:
    """A semantic patch of one driver.

    :param name: ``DRIVER/NAME``.
    :param file: the .cocci file.
    """

    name: str
    file: Path

    @property
    def kind(self) -> Literal["variant"]:
        """Return what it is called in a KERNEL."""
        return "variant"

    @property
    def driver(self) -> str:
        """Return the driver's folder name."""
        return self.name.partition("/")[0]

    @property
    def about(self) -> str:
        """Return the first comment line."""
        lines = (line for line in self.file.read_text().splitlines() if line.startswith("//"))
        texts = (line.strip("/ ") for line in lines)
        return next((text for text in texts if text and not text.startswith("SPDX")), "")

    @property
    def violates(self) -> tuple[str, ...]:
        """Return the ids of the contract's rules that a run with it must violate; a repair has none."""
        found = _VIOLATES.search(self.file.read_text())
        return tuple(word.strip() for word in found[1].split(",")) if found else ()

    @property
    def control(self) -> str | None:
        """Return the variant that must hold those rules in the same run, None for the stock driver."""
        found = _CONTROL.search(self.file.read_text())
        return found[1] if found else None

    @property
    def out_of_sight(self) -> str:
        """Return why no scenario can show the bug on the NIC as QEMU emulates it; nothing where one can."""
        found = _OUT_OF_SIGHT.search(self.file.read_text())
        return found[1] if found else ""

    def rules(self) -> list[str]:
        """Return the names of the semantic patch's rules, in order."""
        return [name for name in _RULE.findall(self.file.read_text()) if name not in _NOT_A_NAME]

    @property
    def asked(self) -> str:
        """Return what follows ``@variant=`` in a KERNEL."""
        return self.name

    @property
    def key(self) -> str:
        """Return what stands for its content."""
        return content_key(self.file)

    def touched(self, source: Path) -> list[str]:
        """Return the Makefile of the driver's folder: which of its files the rules match is not known before.

        :raise Unsupported: the source has no such driver.
        """
        return [_PLACES[self.driver]] if self.driver in _PLACES else [f"{self._folder(source)}/Makefile"]

    def _folder(self, source: Path) -> Path:
        found = next(source.glob(f"drivers/net/ethernet/*/{self.driver}"), None)
        if found is None:
            raise Unsupported(
                f"the source of this kernel has no driver {self.driver}", "choose another kernel"
            )
        return found.relative_to(source)

    def apply(self, toolchain: Toolchain, root: Path, inside: str = "") -> None:
        """Apply the semantic patch to a folder, or to the driver's folder of a whole tree.

        :raise BuildError: it is not valid, or a named rule matched nowhere.
        """
        folder = root
        if not inside:
            folder = (root / self.touched(root)[0]).parent
        options = ["--dir", str(folder), "--in-place", "--no-includes", "--debug"]
        # What matched and what is wrong is told on stderr, the file name and line after the first error.
        shell = ("sh", "-c", '"$@" 2>&1 || echo FAILED', "sh")
        spatch = ("spatch", "--sp-file", str(self.file), *options)
        told = toolchain.run([*shell, *spatch], read=[self.file], write=[folder], timeout_s=300)
        if told.endswith("FAILED\n"):
            place = re.search(r'File ".*", line (\d+)', told)
            where = f"{self.file}:{place[1]}" if place else str(self.file)
            raise BuildError(f"{where}: {first_error(told)}", "correct the semantic patch")
        matched = matched_rules(told)
        missing = [rule for rule in self.rules() if rule not in matched]
        if missing:
            raise BuildError(
                f"the variant {self.name} does not fit this kernel's driver: "
                f"of {self.file.name}, {', '.join(missing)} matched nothing",
                "the variant was written for another source of this driver; choose another kernel",
            )


def matched_rules(debug: str) -> set[str]:
    """Return the rules that matched somewhere, from what ``spatch --debug`` prints.

    It announces each rule as ``NAME =`` and prints ``binding out`` below that for each match.
    """
    matched, rule = set(), ""
    for line in debug.splitlines():
        announced = re.fullmatch(r"(\w+) = ", line)
        if announced:
            rule = announced[1]
        elif rule and line.strip().startswith("binding out ="):
            matched.add(rule)
    return matched


def known_variants() -> list[Variant]:
    """Return all variants, by name."""
    files = (IMAGES / "variants").glob("*/*.cocci")
    return sorted(
        (Variant(f"{file.parent.name}/{file.stem}", file) for file in files), key=lambda each: each.name
    )


def find_variant(name: str) -> Variant:
    """Return the variant of that name.

    :raise UsageError: there is none.
    """
    known = {variant.name: variant for variant in known_variants()}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "see: testbed list variants"
        raise UsageError(f"unknown variant {name!r}; known are {', '.join(known)}", hint)
    return known[name]
