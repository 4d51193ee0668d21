"""Source trees: what belongs to one, its mirror, and what a folder of it becomes."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_toolchain_accelerator import FakeToolchain

from testbed.errors import BuildError, HostError, UsageError
from testbed.kernel import parse
from testbed.kernel.config import fragment, missing_options, options_of
from testbed.kernel.kbuild import Folder, makefile_of, place_by_name
from testbed.kernel.make import first_build_error, make, waiting_lock
from testbed.kernel.mirror import Mirror
from testbed.kernel.overlay import overlay_of_digests
from testbed.kernel.tree import Tree, user_tree
from testbed.toolchain.host import quiet
from testbed.toolchain.recipe import IMAGES

MAKEFILE = "# SPDX\nVERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 4\nEXTRAVERSION =\n"
OLD_S = 1_000_000_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    path = tmp_path / "linux"
    for name in ("kernel/fork.c", "net/core/dev.c", "Documentation/x.rst", "arch/arm/a.c", "arch/x86/a.c"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"{name}\n")
        os.utime(path / name, (OLD_S, OLD_S))
    (path / "Makefile").write_text(MAKEFILE)
    return Tree(path, "tree:x")


def put(tree: Tree, name: str, text: str) -> Path:
    file = tree.path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def commit(tree: Tree) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tree.path)]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)


# What belongs to it


def test_a_tree_knows_its_version(tree: Tree) -> None:
    assert tree.version == "7.3.4"
    assert tree.is_partial


@pytest.mark.parametrize(
    ("makefile", "told"), [(None, "there is no Makefile"), ("all:\n", "is not a kernel's")]
)
def test_what_is_no_kernels_tree_is_wrong_usage(tmp_path: Path, makefile: str | None, told: str) -> None:
    if makefile:
        (tmp_path / "Makefile").write_text(makefile)
    with pytest.raises(UsageError, match=told):
        parse(f"tree:{tmp_path}")


@pytest.mark.parametrize("text", ["", "/nowhere"])
def test_a_tree_that_is_not_there_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="there is no directory"):
        user_tree(text)


@pytest.mark.parametrize("in_git", [True, False])
def test_sources_belong_to_a_tree_and_products_do_not(tree: Tree, *, in_git: bool) -> None:
    put(tree, ".gitignore", "*.o\n*.ko\n.*\n!.gitignore\n")
    if in_git:
        commit(tree)
    for product in ("kernel/fork.o", "kernel/.fork.o.cmd", "drivers/a.ko", ".config"):
        put(tree, product, "made")
    put(tree, "net/core/new.c", "not yet tracked")
    found = set(tree.files())
    assert found - {".gitignore"} == {
        "Makefile",
        "arch/x86/a.c",
        "kernel/fork.c",
        "net/core/dev.c",
        "net/core/new.c",
    }


# Its mirror


def mirrored(mirror: Mirror, tree: Tree) -> dict[str, float]:
    """Return the times of the mirror's files, which must hold what the tree's do."""
    files = {
        str(file.relative_to(mirror.source)): file for file in mirror.source.rglob("*") if file.is_file()
    }
    assert set(files) == {name for name in tree.files() if (tree.path / name).exists()}
    for name, file in files.items():
        assert file.read_bytes() == (tree.path / name).read_bytes()
    return {name: file.stat().st_mtime for name, file in files.items()}


def synced(tree: Tree, tmp_path: Path) -> Mirror:
    """Bring the mirror up to date, as another process would."""
    mirror = Mirror(tmp_path / "workspace", tree)
    mirror.scan()
    mirror.sync()
    return mirror


def test_the_first_mirror_has_the_trees_times(tree: Tree, tmp_path: Path) -> None:
    times = mirrored(synced(tree, tmp_path), tree)
    assert times["kernel/fork.c"] == times["net/core/dev.c"] == OLD_S


def test_only_what_has_another_content_gets_another_time(tree: Tree, tmp_path: Path) -> None:
    before = mirrored(synced(tree, tmp_path), tree)
    (tree.path / "kernel/fork.c").touch()
    file = put(tree, "net/core/dev.c", "changed\n")
    os.utime(file, (OLD_S - 5, OLD_S - 5))  # as a checkout that keeps times would leave it
    (tree.path / "arch/x86/a.c").unlink()
    after = mirrored(synced(tree, tmp_path), tree)
    assert after["kernel/fork.c"] == before["kernel/fork.c"]
    assert after["net/core/dev.c"] > OLD_S
    assert "arch/x86/a.c" not in after


def test_what_a_patch_did_in_the_mirror_is_taken_back(tree: Tree, tmp_path: Path) -> None:
    mirror = synced(tree, tmp_path)
    mirror.will_change(["kernel/fork.c", "kernel/made.c"])
    (mirror.source / "kernel/fork.c").write_text("patched\n")
    (mirror.source / "kernel/made.c").write_text("made\n")
    after = mirrored(synced(tree, tmp_path), tree)
    assert after["kernel/fork.c"] > OLD_S
    assert after["net/core/dev.c"] == OLD_S


def test_a_mirror_whose_record_is_damaged_is_made_anew(tree: Tree, tmp_path: Path) -> None:
    synced(tree, tmp_path)
    (tmp_path / "workspace/mirror.msgpack").write_bytes(b"half")
    mirrored(synced(tree, tmp_path), tree)


def test_the_state_is_that_of_the_content(tree: Tree, tmp_path: Path) -> None:
    first = synced(tree, tmp_path).state()
    (tree.path / "kernel/fork.c").touch()
    assert synced(tree, tmp_path).state() == first
    put(tree, "kernel/fork.c", "changed\n")
    assert synced(tree, tmp_path).state() != first


def test_the_trees_differences_are_what_is_built(tree: Tree, tmp_path: Path) -> None:
    theirs = synced(tree, tmp_path).scan()
    other = Tree(tmp_path / "other", "tree:other")
    shutil.copytree(tree.path, other.path)
    put(other, "kernel/fork.c", "changed\n")
    put(other, "kernel/new.c", "new\n")
    (other.path / "net/core/dev.c").unlink()
    own = Mirror(tmp_path / "workspace-2", other).scan()
    assert overlay_of_digests(other, own, theirs).files == ("kernel/fork.c", "kernel/new.c", "net/core/dev.c")


# What a folder becomes

NAMED = {
    "Documentation/networking/napi.rst": "nothing",
    "MAINTAINERS": "nothing",
    "arch/arm/kernel/setup.c": "nothing",
    "tools/testing/selftests/net/a.c": "nothing",
    "tools/objtool/check.c": "kernel",
    "include/linux/netdevice.h": "kernel",
    "Makefile": "kernel",
    "drivers/net/ethernet/intel/igb/Kconfig": "nothing",
}


@pytest.mark.parametrize(("path", "kind"), NAMED.items())
def test_a_path_alone_may_say_what_becomes_of_it(path: str, kind: str) -> None:
    found = place_by_name(path)
    assert found
    assert found.kind == kind


def test_a_source_file_needs_its_makefile() -> None:
    assert place_by_name("drivers/net/ethernet/intel/igb/igb_main.c") is None


def test_the_nearest_makefile_decides(tree: Tree) -> None:
    put(tree, "net/core/Makefile", "")
    put(tree, "net/core/below/a.c", "")
    assert makefile_of(tree.path, "net/core/below/a.c") == tree.path / "net/core/Makefile"
    assert makefile_of(tree.path, "kernel/fork.c") == tree.path / "Makefile"


DRIVER = Folder(modules={"igb": frozenset({"igb_main", "igb_xsk"})})
MIXED = Folder(frozenset({"dev"}), {"pktgen": frozenset({"pktgen"})})


def test_a_folder_of_modules_is_one_driver() -> None:
    assert DRIVER.is_one_driver
    assert DRIVER.modules_of("igb_main.c") == DRIVER.modules_of("igb.h") == {"igb"}
    assert DRIVER.modules_of("other.c") == frozenset()


def test_a_folder_that_is_part_of_the_kernel_is_none() -> None:
    assert not MIXED.is_one_driver
    assert MIXED.modules_of("pktgen.c") == {"pktgen"}
    assert MIXED.modules_of("dev.h") == MIXED.modules_of("dev.c") == frozenset()


# Configuration and errors


def test_options_are_read_from_fragments_and_configurations() -> None:
    assert options_of('CONFIG_A=y\n# CONFIG_B is not set\n# a word\nCONFIG_C="x"\n') == {
        "CONFIG_A": "y",
        "CONFIG_B": "n",
        "CONFIG_C": '"x"',
    }


def test_the_users_options_come_last_and_debug_adds(tmp_path: Path) -> None:
    more = tmp_path / "more.config"
    more.write_text("# CONFIG_IGB is not set\n")
    options = options_of(fragment([more], debug=True))
    assert (options["CONFIG_IGB"], options["CONFIG_KASAN"]) == ("n", "y")
    assert "CONFIG_KASAN" not in options_of(fragment([], debug=False))


def test_a_file_without_options_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing\n")
    with pytest.raises(UsageError, match="sets no option"):
        fragment([tmp_path / "x"], debug=False)


def test_what_a_guest_needs_is_missed() -> None:
    required = (IMAGES / "kernel/required.config").read_text()
    assert missing_options(required) == []
    without = required.replace("CONFIG_XDP_SOCKETS=y", "# CONFIG_XDP_SOCKETS is not set")
    assert missing_options(without) == ["CONFIG_XDP_SOCKETS=y"]


OUTPUT = {
    "compiler": (
        "  CC      net/core/errors.o\n../source/net/core/dev.c:7:3: error: expected ';'\nmake: *** [x] Error 1\n",
        "net/core/dev.c:7:3: error: expected ';'",
    ),
    "modpost": (
        'ERROR: modpost: "a" [b.ko] undefined!\nmake[1]: *** [y] Error 1\n',
        'ERROR: modpost: "a" [b.ko] undefined!',
    ),
    "linker": (
        "ld: vmlinux.o: in function `f': a.c: undefined reference to `g'\n",
        "ld: vmlinux.o: in function `f': a.c: undefined reference to `g'",
    ),
    "tool": (
        "  GEN     x\nmake[2]: *** [Makefile:9: x] Error 127\n",
        "make[2]: *** [Makefile:9: x] Error 127",
    ),
}


@pytest.mark.parametrize(("said", "first"), OUTPUT.values(), ids=OUTPUT)
def test_the_first_error_of_a_build_is_found(said: str, first: str) -> None:
    assert first_build_error(said, Path("/w/source")) == first


# A build that is interrupted


class Making(FakeToolchain):
    """Runs a shell script where the kernel would be built."""

    def __init__(self, script: str) -> None:
        super().__init__("")
        self.script = script

    def argv(self, command: Sequence[str], **_options: object) -> list[str]:
        del command
        return ["sh", "-c", self.script]


STEP = "echo '  CC      kernel/fork.o'\n"


def test_a_build_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[str] = []
    make(tmp_path, tmp_path, [], Making(STEP * 3), told.append)
    assert told == ["1 steps: fork.o"]
    assert not (tmp_path / "testbed.building").exists()


def test_a_build_that_ended_is_gone_on_with_but_for_what_it_wrote_last(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"fork\.c:1:1: error: no"):
        make(tmp_path, tmp_path, [], Making(STEP + "echo 'fork.c:1:1: error: no'; exit 2"), lambda _: None)
    for name, age_s in (("old.o", 300), ("new.o", 0), ("vmlinux.o", 1), ("new.c", 0)):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (OLD_S - age_s, OLD_S - age_s))
    told: list[str] = []
    make(tmp_path, tmp_path, [], Making(STEP), told.append)
    assert told == ["going on after 1 steps, where a build ended", "2 steps: fork.o"]
    assert {file.name for file in tmp_path.iterdir() if file.is_file()} == {"old.o", "new.c"}


def test_a_full_disk_is_called_so(tmp_path: Path) -> None:
    script = "echo 'fatal error: error writing to x.s: No space left on device'; exit 1"
    with pytest.raises(HostError, match="the disk is full"):
        make(tmp_path, tmp_path, [], Making(script), lambda _: None)


def test_who_comes_second_is_told_to_wait(tmp_path: Path) -> None:
    del tmp_path
    told, begun = [], threading.Event()

    def second() -> None:
        with waiting_lock("trees-x", "tree:x", lambda _, line: told.append(line)):
            begun.set()

    with waiting_lock("trees-x", "tree:x", quiet):
        thread = threading.Thread(target=second)
        thread.start()
        while not told:
            time.sleep(0.01)
        assert not begun.is_set()
    thread.join(timeout=10)
    assert begun.is_set()
    assert told == ["waiting for another testbed that builds this tree"]
