"""Patches as they are handed in: files, mails, series; and what is told of those that are wrong."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_toolchain_accelerator import FakeToolchain

from testbed.errors import BuildError, UsageError
from testbed.kernel.patch import Patch

LINES = [f"line {number}" for number in range(1, 21)]
FOLDER = "drivers/net/ethernet/intel/igb"


def diff_of(path: str, line: int, text: str) -> str:
    """Return a diff that writes another text into one of LINES."""
    at = range(max(1, line - 3), min(len(LINES), line + 3) + 1)
    body = "".join(f"-line {line}\n+{text}\n" if number == line else f" line {number}\n" for number in at)
    return f"--- a/{path}\n+++ b/{path}\n@@ -{at[0]},{len(at)} +{at[0]},{len(at)} @@\n{body}"


ONE, TWO = diff_of(f"{FOLDER}/igb.c", 5, "five"), diff_of(f"{FOLDER}/igb.c", 15, "fifteen")
OTHER = diff_of("net/core/dev.c", 2, "two")
MAIL = "From {sha} Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: {subject}\n\n"


def mail(subject: str, diff: str) -> str:
    head = MAIL.format(sha="0" * 40, subject=subject)
    return f"{head}From here on it is better.\n---\n igb.c | 2 +-\n\n{diff}-- \n2.47.3\n\n"


class Patching(FakeToolchain):
    """Runs the host's patch where the toolchain's would run."""

    def __init__(self) -> None:
        super().__init__("")

    def argv(self, command: Sequence[str], **_options: object) -> list[str]:
        return list(command)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path in (f"{FOLDER}/igb.c", "net/core/dev.c"):
        file = tmp_path / "tree" / path
        file.parent.mkdir(parents=True)
        file.write_text("".join(f"{line}\n" for line in LINES))
    return tmp_path / "tree"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def lines_of(tree: Path, path: str = f"{FOLDER}/igb.c") -> list[str]:
    return (tree / path).read_text().splitlines()


def test_a_diff_changes_a_tree_and_is_taken_back(tree: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "fix.diff", ONE + OTHER + TWO)
    patch = Patch(file)
    assert patch.touched(tree) == [f"{FOLDER}/igb.c", "net/core/dev.c"]
    patch.apply(Patching(), tree)
    assert (lines_of(tree)[4], lines_of(tree)[14], lines_of(tree, "net/core/dev.c")[1]) == (
        "five",
        "fifteen",
        "two",
    )
    Patch(file, reverse=True).apply(Patching(), tree)
    assert lines_of(tree) == lines_of(tree, "net/core/dev.c") == LINES


def test_only_what_lies_in_a_folder_is_changed_there(tree: Path, tmp_path: Path) -> None:
    Patch(write(tmp_path / "fix.diff", ONE + OTHER)).apply(Patching(), tree / FOLDER, FOLDER)
    assert lines_of(tree)[4] == "five"
    assert lines_of(tree, "net/core/dev.c") == LINES


def test_a_mailbox_is_read_mail_by_mail_and_a_cover_letter_changes_nothing(
    tree: Path, tmp_path: Path
) -> None:
    text = mail("[PATCH 0/2] igb: better", "") + mail("[PATCH 1/2] a", ONE) + mail("[PATCH 2/2] b", TWO)
    patch = Patch(write(tmp_path / "series.mbox", text))
    assert [diff.origin for diff in patch.diffs] == ["[PATCH 1/2] a", "[PATCH 2/2] b"]
    patch.apply(Patching(), tree)
    assert (lines_of(tree)[4], lines_of(tree)[14]) == ("five", "fifteen")


def test_a_mail_in_quoted_printable_is_decoded(tmp_path: Path) -> None:
    head = "From: A <a@b>\nSubject: one\nContent-Transfer-Encoding: quoted-printable\n\n"
    patch = Patch(write(tmp_path / "one.eml", head + ONE.replace("five", "f=69ve")))
    assert "+five\n" in patch.diffs[0].text


@pytest.mark.parametrize("series", ["", "# quilt\nb.patch\na.patch -p1\n"])
def test_a_series_has_the_order_of_its_list_or_of_names(tmp_path: Path, series: str) -> None:
    write(tmp_path / "s/a.patch", ONE)
    write(tmp_path / "s/b.patch", TWO)
    if series:
        write(tmp_path / "s/series", series)
    origins = [diff.origin for diff in Patch(tmp_path / "s").diffs]
    assert origins == (["b.patch", "a.patch"] if series else ["a.patch", "b.patch"])
    assert [diff.origin for diff in Patch(tmp_path / "s", reverse=True).diffs] == origins[::-1]


def test_a_removed_line_that_looks_like_a_header_is_none(tree: Path, tmp_path: Path) -> None:
    tricky = ONE.replace("@@ -2,7 +2,7 @@\n", "@@ -2,8 +2,7 @@\n").replace(
        "-line 5\n", "--- a/net/core/dev.c\n-line 5\n"
    )
    assert Patch(write(tmp_path / "x.diff", tricky)).touched(tree) == [f"{FOLDER}/igb.c"]


def test_a_new_file_is_made(tree: Path, tmp_path: Path) -> None:
    new = f"--- /dev/null\n+++ b/{FOLDER}/new.h\n@@ -0,0 +1 @@\n+/* new */\n"
    Patch(write(tmp_path / "new.diff", new)).apply(Patching(), tree)
    assert (tree / FOLDER / "new.h").read_text() == "/* new */\n"


def test_what_does_not_apply_is_told_by_hunk_and_file(tree: Path, tmp_path: Path) -> None:
    wrong = TWO.replace(" line 14\n", " another line\n")
    both = ONE + wrong.partition("+++ ")[2].partition("\n")[2]
    patch = Patch(write(tmp_path / "fix.mbox", mail("[PATCH] igb: fix", both)))
    with pytest.raises(
        BuildError, match=rf"fix\.mbox \(\[PATCH\] igb: fix\) .* hunk 2 of {FOLDER}/igb\.c .* at line 12"
    ):
        patch.apply(Patching(), tree)


def test_a_shifted_hunk_applies_but_not_one_with_other_context(tree: Path, tmp_path: Path) -> None:
    (tree / FOLDER / "igb.c").write_text("new\n" * 4 + "".join(f"{line}\n" for line in LINES))
    Patch(write(tmp_path / "fix.diff", ONE)).apply(Patching(), tree)
    assert lines_of(tree)[8] == "five"


def test_a_change_that_is_there_already_is_told(tree: Path, tmp_path: Path) -> None:
    patch = Patch(write(tmp_path / "fix.diff", ONE))
    patch.apply(Patching(), tree)
    with pytest.raises(BuildError, match=r"igb\.c has the change already"):
        patch.apply(Patching(), tree)


def test_a_change_that_is_not_there_cannot_be_taken_back(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"does not have the change that is to be taken back"):
        Patch(write(tmp_path / "fix.diff", ONE), reverse=True).apply(Patching(), tree)


def test_a_file_that_the_kernel_has_not_is_told(tree: Path, tmp_path: Path) -> None:
    patch = Patch(write(tmp_path / "fix.diff", ONE.replace("igb.c", "gone.c")))
    with pytest.raises(BuildError, match=r"changes .*/gone\.c, which this kernel does not have"):
        patch.apply(Patching(), tree)


BROKEN = {
    "empty": ("", "holds no unified diff"),
    "text": ("just words\n", "holds no unified diff"),
    "cut in a hunk": (ONE[:-20], "is damaged"),
    "cut in a name": (ONE[: len(ONE) // 2], "is damaged: .* has no hunk"),
    "binary": ("diff --git a/x b/x\nGIT binary patch\nliteral 1\n", "binary change"),
}


@pytest.mark.parametrize(("text", "told"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_patch_is_wrong_usage(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        _ = Patch(write(tmp_path / "x.diff", text)).diffs


def test_an_empty_directory_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no unified diff"):
        _ = Patch(tmp_path).diffs


def test_a_real_mail_of_git_is_read(tree: Path, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tree)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    (tree / FOLDER / "igb.c").rename(tree / FOLDER / "renamed.c")
    (tree / "net/core/dev.c").write_text("ä\n")
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "Überarbeitet: renames a file"], check=True)
    subprocess.run([*git, "format-patch", "-q", "-1", "-o", str(tmp_path / "out")], check=True)
    subprocess.run([*git, "reset", "-q", "--hard", "HEAD^"], check=True)
    patch = Patch(tmp_path / "out")
    assert "Überarbeitet" in patch.diffs[0].origin
    patch.apply(Patching(), tree)
    assert (tree / FOLDER / "renamed.c").exists()
    assert (tree / "net/core/dev.c").read_text() == "ä\n"
