from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from test_toolchain_accelerator import FakeToolchain

from testbed.errors import BuildError, Unsupported, UsageError
from testbed.kernel import Kernel, known_variants, with_variants
from testbed.kernel import variant as variants
from testbed.kernel.variant import Variant, matched_rules

DEBUG = """\
first =
dependencies for rule first satisfied:
binding in = []
-----
second =
dependencies for rule second satisfied:
     binding out = []
     binding out = []
third =
dependencies for rule third not satisfied:
""".replace(" =\n", " = \n")
COCCI = """\
// SPDX-License-Identifier: GPL-2.0-or-later
// What it is
// more of it
// Violates: no-spin, carrier-quiet
// Control: igb/two
@first@
@@
- a();
@second depends on first@
expression E;
@@
- b(E);
@@
@@
- unnamed();
@ third exists @
@@
- c();
"""


class SpatchAndMake(FakeToolchain):
    """Says which rules matched, and makes a module of whatever is in the folder."""

    def __init__(self, matched: Sequence[str]) -> None:
        super().__init__("")
        self.matched = matched
        self.commands: list[str] = []
        self.remembered: list[str] = []

    def argv(self, command, *, read=(), write=(), cwd=None):  # type: ignore[no-untyped-def]
        del read, cwd
        if command[0] == "make" and "-f" in command:
            return ["echo", "module igb.o"]
        self.commands.append(command[0])
        if command[0] == "make":
            commands = write[0] / ".igb.o.cmd"
            self.remembered.append(commands.read_text().strip() if commands.exists() else "")
            commands.write_text(f"gcc {write[0]}/igb.c\n")
            return ["sh", "-c", f"cat {write[0]}/*.c >{write[0]}/igb.ko"]
        if "spatch" in command:
            told = "".join(f"{name} = \n binding out = []\n" for name in self.matched)
            return ["sh", "-c", f"echo changed >>{write[0]}/igb.c; printf '%s' '{told}'"]
        return ["true"]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setenv("TESTBED_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "source/drivers/net/ethernet/intel/igb"
    folder.mkdir(parents=True)
    (folder / "igb.c").write_text("stock\n")
    (folder / "Makefile").write_text("obj-m += igb.o\n")
    (tmp_path / "src/headers").mkdir(parents=True)
    return Kernel(
        name="test",
        release="1.0",
        package="",
        vmlinuz=tmp_path / "vmlinuz",
        modules=tmp_path,
        config=tmp_path / "config",
        headers=tmp_path / "src/headers",
        identity="0",
        source=tmp_path / "source",
    )


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Offer two variants of igb and one of a driver that the kernel has not."""
    for name in ("igb/one", "igb/two", "nic/other"):
        file = tmp_path / "images/variants" / f"{name}.cocci"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(COCCI)
    monkeypatch.setattr(variants, "IMAGES", tmp_path / "images")
    return tmp_path / "images/variants"


ALL = ("first", "second", "third")


def test_a_rule_has_matched_when_it_was_bound_somewhere() -> None:
    assert matched_rules(DEBUG) == {"second"}


def test_a_variant_tells_what_it_is_and_its_rules(shipped: Path) -> None:
    variant = Variant("igb/one", shipped / "igb/one.cocci")
    assert variant.about == "What it is"
    assert variant.rules() == list(ALL)
    assert variant.driver == "igb"
    assert variant.violates == ("no-spin", "carrier-quiet")
    assert variant.control == "igb/two"


def test_a_variant_without_declarations_violates_nothing_and_is_judged_against_stock(tmp_path: Path) -> None:
    file = tmp_path / "repair.cocci"
    file.write_text("// A repair\n@all@\n@@\n- a();\n")
    assert Variant("igb/repair", file).violates == ()
    assert Variant("igb/repair", file).control is None
    assert Variant("igb/repair", file).out_of_sight == ""
    file.write_text("// A bug\n// Out of sight: nothing arrives in time\n@all@\n@@\n- a();\n")
    assert Variant("igb/repair", file).out_of_sight == "nothing arrives in time"


def test_objects_of_the_unchanged_driver_serve_all_variants(
    kernel: Kernel, shipped: Path, tmp_path: Path
) -> None:
    (shipped / "igb/two.cocci").write_text(COCCI.replace("What it is", "Another"))
    toolchain = SpatchAndMake(ALL)
    with_variants(kernel, ["igb/one"], toolchain)
    with_variants(kernel, ["igb/two"], toolchain)
    assert toolchain.commands.count("make") == 3  # the unchanged driver once, and each variant
    (stock,) = (tmp_path / "cache/drivers").iterdir()
    assert (stock / "tree/.igb.o.cmd").read_text() == "gcc /TREE/igb.c\n"
    assert [line.endswith("/tree/igb.c") for line in toolchain.remembered] == [False, True, True]


def test_variants_are_listed_by_name() -> None:
    assert [variant.name for variant in known_variants()] == ["igb/one", "igb/two", "nic/other"]


def test_a_variant_replaces_the_drivers_module(kernel: Kernel) -> None:
    toolchain = SpatchAndMake(ALL)
    changed = with_variants(kernel, ["igb/one"], toolchain)
    assert changed.variants == ["igb/one"]
    assert changed.replaced["igb"].read_text() == "stock\nchanged\n"
    assert kernel.replaced == {}
    assert changed.identity != kernel.identity
    kept = {path.name for path in changed.replaced["igb"].parent.iterdir()}
    assert kept == {"igb.ko", "origin.json"}


def test_a_built_variant_is_found_again(kernel: Kernel) -> None:
    toolchain = SpatchAndMake(ALL)
    first = with_variants(kernel, ["igb/one"], toolchain)
    toolchain.commands.clear()
    assert with_variants(kernel, ["igb/one"], toolchain) == first
    assert toolchain.commands == []


def test_a_changed_variant_is_built_anew(kernel: Kernel, shipped: Path) -> None:
    toolchain = SpatchAndMake(ALL)
    first = with_variants(kernel, ["igb/one"], toolchain)
    with (shipped / "igb/one.cocci").open("a") as file:
        file.write("// another\n")
    assert with_variants(kernel, ["igb/one"], toolchain).replaced != first.replaced


def test_two_variants_of_a_driver_are_applied_one_after_the_other(kernel: Kernel) -> None:
    toolchain = SpatchAndMake(ALL)
    changed = with_variants(with_variants(kernel, ["igb/one"], toolchain), ["igb/two"], toolchain)
    assert changed.variants == ["igb/one", "igb/two"]
    assert changed.replaced["igb"].read_text() == "stock\nchanged\nchanged\n"


def test_a_rule_that_matched_nothing_is_named_and_nothing_is_kept(kernel: Kernel, tmp_path: Path) -> None:
    with pytest.raises(
        BuildError, match=r"igb/one does not fit .* of one\.cocci, second, third matched nothing"
    ):
        with_variants(kernel, ["igb/one"], SpatchAndMake(["first"]))
    assert list((tmp_path / "cache/variants").iterdir()) == []


def test_an_unknown_variant_is_told_the_nearest(kernel: Kernel) -> None:
    with pytest.raises(UsageError, match="unknown variant 'igb/tow'") as caught:
        with_variants(kernel, ["igb/tow"], SpatchAndMake(ALL))
    assert caught.value.remedy == "did you mean igb/two?"


def test_a_driver_that_the_source_has_not_is_unsupported(kernel: Kernel) -> None:
    with pytest.raises(Unsupported, match="has no driver nic"):
        with_variants(kernel, ["nic/other"], SpatchAndMake(ALL))


def test_an_image_of_the_users_own_has_no_variants(kernel: Kernel) -> None:
    with pytest.raises(Unsupported, match="no headers and source"):
        with_variants(replace(kernel, headers=None), ["igb/one"], SpatchAndMake(ALL))
