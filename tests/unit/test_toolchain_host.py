import sys
from pathlib import Path

import pytest

from testbed.errors import BuildError, HostError
from testbed.toolchain.host import attempt, first_error, follow, need_space, program, run


def test_a_missing_program_names_the_package_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_args, **_kwargs: None)
    with pytest.raises(HostError) as caught:
        program("bwrap")
    assert caught.value.remedy == "apt-get install bubblewrap"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "  CC igb.o\nigb.c:3: error: no semicolon\nmake: *** [igb.o] Error 1\n",
            "igb.c:3: error: no semicolon",
        ),
        ("W: slow\nE: Unable to locate package x\n", "E: Unable to locate package x"),
        ("first\nlast\n", "last"),
        ("", "no message"),
    ],
)
def test_the_first_line_that_names_an_error_is_told(said: str, told: str) -> None:
    assert first_error(said) == told


def test_a_program_that_fails_is_named_with_its_status() -> None:
    with pytest.raises(BuildError, match=r"frobnicating failed \(exit status 3\): fatal: no"):
        run(["sh", "-c", "echo fatal: no >&2; exit 3"], what="frobnicating", timeout_s=10)


def test_a_program_that_does_not_end_is_killed_and_named() -> None:
    with pytest.raises(BuildError, match=r"sleeping did not end within 0 s"):
        run(["sleep", "60"], what="sleeping", timeout_s=0.05)


def test_a_followed_program_that_does_not_end_is_killed() -> None:
    lines: list[str] = []
    with pytest.raises(BuildError, match="did not end"):
        follow(["sh", "-c", "echo one; exec sleep 60"], lines.append, timeout_s=0.3)
    assert lines == ["one"]


def test_a_followed_program_is_shown_line_by_line() -> None:
    lines: list[str] = []
    assert follow(["sh", "-c", "echo a; echo b >&2; exit 4"], lines.append, timeout_s=10) == (4, "a\nb\n")
    assert lines == ["a", "b"]


def test_a_full_disk_is_recognised_in_what_a_program_says() -> None:
    with pytest.raises(HostError, match="the disk is full"):
        run(["sh", "-c", "echo 'cp: x: No space left on device' >&2; exit 1"], what="cp", timeout_s=10)


def test_too_little_space_is_told_with_both_figures(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"needs 1000000000 MB in .*, \d+ MB are free"):
        need_space(tmp_path, 10**9, "building")
    need_space(tmp_path, 0, "building")


def test_stdin_is_empty_unless_given() -> None:
    assert attempt(["cat"], timeout_s=10).stdout == b""
    assert attempt(["cat"], timeout_s=10, stdin=b"x").stdout == b"x"


def test_programs_die_with_the_thread_that_waits_for_them() -> None:
    get_pdeathsig = (
        "import ctypes; s = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(s)); print(s.value)"
    )
    assert attempt([sys.executable, "-c", get_pdeathsig], timeout_s=30).stdout == b"9\n"
