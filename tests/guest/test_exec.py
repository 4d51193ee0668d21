"""``testbed exec``: a program of the user's in a real guest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from testbed.toolchain import Toolchain

SOURCE = Path(__file__).with_name("program.c")


class Execute(Protocol):
    """Run the program in a guest with igb; options of ``testbed exec`` by name."""

    def __call__(
        self, *words: str, timeout: str = "60", clock: str = "virtual"
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(scope="module")
def program(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("exec")
    command = ["gcc", "-O1", "-static", "-o", "program", str(SOURCE)]
    toolchain.run(command, read=[SOURCE], write=[directory], cwd=directory, timeout_s=60)
    return directory / "program"


@pytest.fixture(scope="module")
def execute(program: Path) -> Execute:
    def run(*words: str, timeout: str = "60", clock: str = "virtual") -> subprocess.CompletedProcess[str]:
        options = ["--nic", "igb", "--timeout", timeout, "--clock", clock]
        main = "from testbed.cli import main; main()"
        argv = [sys.executable, "-c", main, "exec", *options, "--", str(program), *words]
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180, check=False
        )

    return run


def test_the_program_sees_the_nic_up_with_its_address(execute: Execute) -> None:
    done = execute("eth0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "running 192.0.2.2\n", "")


def test_arguments_arrive_as_they_are(execute: Execute, program: Path) -> None:
    words = ("words", "", "two words", "--json", "-x", "ü")
    assert execute(*words).stdout == "".join(f"[{word}]" for word in (str(program), *words))


def test_stdout_and_stderr_stay_apart(execute: Execute) -> None:
    done = execute("both")
    assert (done.stdout, done.stderr) == ("to stdout", "to stderr")


def test_much_output_comes_whole_and_in_order(execute: Execute) -> None:
    assert execute("much", "20000").stdout == "".join(f"{number:07}\n" for number in range(20000))


def test_stdin_is_empty(execute: Execute) -> None:
    assert execute("input").stdout == "-1"


@pytest.mark.parametrize("status", [3, 124])
def test_the_exit_status_is_ours(execute: Execute, status: int) -> None:
    assert execute("status", str(status)).returncode == status


def test_a_signal_is_128_and_its_number(execute: Execute) -> None:
    assert execute("signal", "9").returncode == 128 + 9


def test_sleep_takes_no_time_in_virtual_time(execute: Execute) -> None:
    assert execute("sleep", "120").returncode == 0


def test_a_program_that_does_not_end_is_status_3(execute: Execute) -> None:
    done = execute("sleep", "3600", timeout="2", clock="real")
    assert done.returncode == 3
    assert done.stderr.startswith("testbed: the program did not end: ")
    assert done.stderr.count("\n") == 1


def test_a_kernel_that_panics_is_status_3_with_its_last_line(execute: Execute) -> None:
    done = execute("crash")
    assert done.returncode == 3
    assert "the kernel panicked" in done.stderr
    assert done.stderr.count("\n") == 1


def test_nobody_reads_the_output_any_more(program: Path) -> None:
    main = "from testbed.cli import main; main()"
    argv = [sys.executable, "-c", main, "exec", "--nic", "igb", "--", str(program), "much", "100000000"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "0000000\n"
        process.stdout.close()
        assert process.wait(120) == 141
        assert process.stderr.read() == ""


def test_a_dynamic_program_is_refused(toolchain: Toolchain, program: Path) -> None:
    directory = program.parent
    command = ["gcc", "-O1", "-o", "dynamic", str(SOURCE)]
    toolchain.run(command, read=[SOURCE], write=[directory], cwd=directory, timeout_s=60)
    main = "from testbed.cli import main; main()"
    argv = [sys.executable, "-c", main, "exec", "--nic", "igb", "--", str(directory / "dynamic")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is linked dynamically: it needs /lib64/ld-linux-x86-64.so.2" in done.stderr
