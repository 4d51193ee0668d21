from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed.guest import accelerator
from testbed.guest.accelerator import Accelerator, probe
from testbed.toolchain.host import run


class FakeToolchain:
    """Runs a shell script in QEMU's place."""

    identity = "fake"

    def __init__(self, script: str) -> None:
        self.script = script
        self.starts = 0

    def argv(
        self,
        command: Sequence[str],
        *,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
        cwd: Path | None = None,
    ) -> list[str]:
        del read, write, cwd
        assert command[0] == "qemu-system-x86_64"
        self.starts += 1
        return ["sh", "-c", self.script]

    def run(
        self,
        command: Sequence[str],
        *,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
        cwd: Path | None = None,
        timeout_s: float,
        stdin: bytes | None = None,
    ) -> str:
        argv = self.argv(command, read=read, write=write, cwd=cwd)
        return run(argv, what=command[0], timeout_s=timeout_s, stdin=stdin)

    def file(self, path: str) -> Path:
        return Path(path)


@pytest.fixture(autouse=True)
def kvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    device = tmp_path / "kvm"
    device.write_text("")
    monkeypatch.setattr(accelerator, "_KVM", device)
    monkeypatch.setenv("TESTBED_CACHE", str(tmp_path / "cache"))
    return device


def test_kvm_is_used_when_a_guest_ran() -> None:
    assert probe(FakeToolchain("exit 33")).name == "kvm"


def test_a_guest_that_hangs_means_tcg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "_LIMIT_S", 0.1)
    assert probe(FakeToolchain("exec sleep 60")) == Accelerator(
        "tcg", "/dev/kvm is there, and a guest under it hung for 0 s"
    )


def test_qemus_refusal_is_told() -> None:
    found = probe(FakeToolchain("echo 'failed to initialize kvm: Permission denied' >&2; exit 1"))
    assert found.name == "tcg"
    assert "Permission denied" in found.why


def test_a_machine_without_kvm_is_not_tried(kvm: Path) -> None:
    kvm.unlink()
    toolchain = FakeToolchain("exit 33")
    assert probe(toolchain) == Accelerator("tcg", "this machine has no /dev/kvm")
    assert toolchain.starts == 0


def test_the_answer_is_remembered_until_the_machine_is_booted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain = FakeToolchain("exit 33")
    assert probe(toolchain) == probe(toolchain)
    assert toolchain.starts == 1
    (tmp_path / "boot_id").write_text("another")
    monkeypatch.setattr(accelerator, "_BOOT_ID", tmp_path / "boot_id")
    probe(toolchain)
    assert toolchain.starts == 2


def test_a_damaged_answer_is_asked_for_again(tmp_path: Path) -> None:
    toolchain = FakeToolchain("exit 33")
    probe(toolchain)
    (remembered,) = (tmp_path / "cache/accelerator").iterdir()
    remembered.write_text("{")
    assert probe(toolchain).name == "kvm"
