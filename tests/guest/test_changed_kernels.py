"""Kernels that a user changes: patches built against the stock kernel, partial trees, and bisecting one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from victims import TESTBED, Cache

from testbed.errors import BuildError
from testbed.kernel import resolve
from testbed.kernel.variant import find_variant
from testbed.toolchain import open_toolchain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from victims import Ended

FOLDER = "drivers/net/ethernet/intel/igb"
BAD = "igb/flush-after-complete"
RULE = "flush-before-complete"


@pytest.fixture(scope="module")
def driver() -> Path:
    """Return the stock driver's folder."""
    source = resolve().source
    assert source
    return source / FOLDER


@pytest.fixture
def patch(driver: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return what makes a patch of igb_xsk.c, of texts to put in the place of others, after variants."""

    def make(changes: dict[str, str], *variants: str, name: str = "change.patch") -> Path:
        before, after = (tmp_path / side / FOLDER for side in "ab")
        for folder in (before, after):
            shutil.copytree(driver, folder, dirs_exist_ok=True)
            for variant in variants:
                find_variant(variant).apply(open_toolchain(), folder, FOLDER)
        text = (after / "igb_xsk.c").read_text()
        for old, new in changes.items():
            assert old in text
            at = text.rindex(old)
            text = text[:at] + new + text[at + len(old) :]
        (after / "igb_xsk.c").write_text(text)
        names = [str(folder.relative_to(tmp_path) / "igb_xsk.c") for folder in (before, after)]
        done = subprocess.run(
            ["diff", "-u", *names], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        (tmp_path / name).write_text(done.stdout)
        return tmp_path / name

    return make


def run(cache: Cache, scenario: Path, *words: str | Path) -> Ended:
    return cache.call("run", scenario, "--nic", "igb", "--rule", RULE, *words)


# Patches


def test_a_patch_of_a_driver_gets_its_verdict_and_is_told_where_it_is_built(
    cache: Cache, scenario: Path, patch: Callable[..., Path]
) -> None:
    file = patch({"result = IGB_XDP_CONSUMED;": "result = IGB_XDP_CONSUMED; /* as said */"})
    ended = run(cache, scenario, "--patch", file, "--json")
    assert ended.status == 0, ended.err
    assert re.search(rf"{FOLDER} is built against the headers of 7\.\d+", ended.err)
    kernel = ended.document()["kernel"]
    assert kernel["patches"] == ["change.patch"]
    assert kernel["asked"].endswith(f"@patch={file}")


def test_a_patch_that_is_taken_back_leaves_the_driver_as_it_was(
    patch: Callable[..., Path], driver: Path
) -> None:
    file = patch({"result = IGB_XDP_CONSUMED;": "result = IGB_XDP_EXIT;"})
    text = (driver / "igb_xsk.c").read_text()
    untouched = patch({text[-1:]: text[-1:] + "/* nothing that is compiled */\n"}, name="comment.patch")
    changed, back = resolve(f"@patch={file}"), resolve(f"@patch={file}@reverse-patch={file}")
    assert changed.patches == ["change.patch"]
    assert back.patches == ["change.patch", "change.patch reversed"]
    assert back.identity == resolve(f"@patch={untouched}").identity != changed.identity


def test_variants_and_patches_apply_in_the_order_of_the_kernel(patch: Callable[..., Path]) -> None:
    variant = "igb/ring-full-exit"
    behind = patch({"if (result != IGB_XDP_EXIT)": "if (!result)"}, variant)
    assert resolve(f"@variant={variant}@patch={behind}").variants == [variant]
    with pytest.raises(BuildError, match=rf"change\.patch does not apply: hunk 1 of {FOLDER}/igb_xsk\.c"):
        resolve(f"@patch={behind}@variant={variant}")


def test_a_hunk_that_does_not_apply_is_named(
    cache: Cache, scenario: Path, patch: Callable[..., Path]
) -> None:
    file = patch({"result = IGB_XDP_CONSUMED;": "result = 0;"})
    wrong = re.sub(r"(?m)^ (\t.*)$", r" \1 /* elsewhere */", file.read_text(), count=1)
    file.write_text(wrong)
    ended = run(cache, scenario, "--patch", file)
    assert ended.status == 3
    assert re.search(
        rf"change\.patch does not apply: hunk 1 of {FOLDER}/igb_xsk\.c .* at line \d+", ended.err
    )


def test_a_compile_error_is_the_compilers_first(
    cache: Cache, scenario: Path, patch: Callable[..., Path]
) -> None:
    file = patch({"result = IGB_XDP_CONSUMED;": "result = no_such_name;"})
    ended = run(cache, scenario, "--patch", file)
    assert ended.status == 3
    assert re.search(r"igb_xsk\.c:\d+:\d+: error: .no_such_name. undeclared", ended.err)


OUTSIDE = {
    "documentation": (
        "Documentation/networking/napi.rst",
        "changes nothing that debian:.* is built from: Documentation/",
    ),
    "another driver of the folder": (
        "drivers/net/ethernet/stmicro/stmmac/dwmac-rk.c",
        "changes nothing that debian:.* is built from: .*dwmac-rk.c",
    ),
}


@pytest.mark.parametrize(("path", "told"), OUTSIDE.values(), ids=OUTSIDE)
def test_a_patch_of_what_is_not_built_is_refused(
    cache: Cache, scenario: Path, tmp_path: Path, path: str, told: str
) -> None:
    file = tmp_path / "doc.patch"
    file.write_text(f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n")
    ended = run(cache, scenario, "--patch", file)
    assert ended.status == 3
    assert re.search(told, ended.err)


# Trees


class History:
    """A git tree with the top Makefile and one driver, as a sparse checkout has them."""

    def __init__(self, path: Path, driver: Path) -> None:
        self.path = path
        headers = resolve().headers
        assert headers
        (path / FOLDER).mkdir(parents=True)
        shutil.copy(next(headers.parent.glob("*-common")) / "Makefile", path / "Makefile")
        shutil.copytree(driver, path / FOLDER, dirs_exist_ok=True)
        self.git("init", "-q", "-b", "main")
        self.commit("stock driver")

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "advice.detachedHead=false")
        done = subprocess.run(
            ["git", *who, "-C", self.path, *words],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PATH": f"{TESTBED.parent}:{os.environ['PATH']}"},
        )
        return done.stdout

    def commit(self, subject: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-qm", subject)
        return self.git("rev-parse", "HEAD").strip()

    def edit(self, name: str, text: str) -> None:
        with (self.path / FOLDER / name).open("a") as file:
            file.write(text)


@pytest.fixture
def history(driver: Path, tmp_path: Path) -> History:
    (tmp_path / "tree").mkdir()
    return History(tmp_path / "tree", driver)


def test_bisecting_a_tree_finds_the_bad_commit(history: History, scenario: Path) -> None:
    good = history.git("rev-parse", "HEAD").strip()
    history.edit("igb_hwmon.c", "/* harmless */\n")
    history.commit("a comment")
    history.edit("igb_xsk.c", "/* harmless, too */\n")
    history.commit("another comment")
    folder = history.path / FOLDER
    find_variant(BAD).apply(open_toolchain(), folder, FOLDER)
    bad = history.commit("the order of flush and completion")
    history.edit("igb_xsk.c", "/* and harmless */\n")
    history.commit("a third comment")
    history.git("bisect", "start", "HEAD", good)
    words = (
        "run",
        str(scenario),
        "--nic",
        "igb",
        "--kernel",
        f"tree:{history.path}",
        "--rule",
        RULE,
        "--bisect",
    )
    told = history.git("bisect", "run", "testbed", *words)
    assert f"{bad} is the first bad commit" in told


def test_a_tree_that_does_not_compile_is_skipped_and_wrong_usage_stops(
    cache: Cache, history: History, scenario: Path
) -> None:
    history.edit("igb_xsk.c", "int broken(\n")
    tree = ("--kernel", f"tree:{history.path}", "--bisect")
    ended = run(cache, scenario, *tree)
    assert (ended.status, "error: " in ended.err) == (125, True)
    assert run(cache, scenario, *tree, "--rule", "nope").status == 128


def test_the_users_tree_is_left_as_it_is(cache: Cache, history: History, scenario: Path) -> None:
    history.edit("igb_hwmon.c", "/* not committed */\n")
    before = {path: path.stat().st_mtime_ns for path in history.path.rglob("*") if ".git" not in path.parts}
    ended = run(cache, scenario, "--kernel", f"tree:{history.path}", "--json")
    assert ended.status == 0, ended.err
    assert ended.document()["kernel"]["name"] == f"tree:{history.path}"
    assert f"is {resolve().name}" in ended.err
    after = {path: path.stat().st_mtime_ns for path in history.path.rglob("*") if ".git" not in path.parts}
    assert after == before
    assert history.git("status", "--short").split() == ["M", f"{FOLDER}/igb_hwmon.c"]


def test_a_partial_tree_of_no_kernel_at_hand_is_unsupported(
    cache: Cache, history: History, scenario: Path
) -> None:
    makefile = history.path / "Makefile"
    makefile.write_text(re.sub(r"(?m)^SUBLEVEL = .*$", "SUBLEVEL = 99", makefile.read_text()))
    ended = run(cache, scenario, "--kernel", f"tree:{history.path}")
    assert ended.status == 4
    assert "only a part of Linux" in ended.err
