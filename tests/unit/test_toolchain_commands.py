import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from host_fakes import FakeHost

from testbed import doctor as examination
from testbed import toolchain
from testbed.cli import doctor, list_, setup
from testbed.guest.accelerator import Accelerator
from testbed.kernel import default_kernel


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = FakeHost(tmp_path, monkeypatch)
    host.script("bwrap", 'while [ "$1" != -- ]; do [ "$1" = true ] && exit 0; shift; done; shift; exec "$@"')
    host.script("qemu-system-x86_64", "echo QEMU emulator version 11.1.3")
    host.mmdebstrap(after="touch $target/usr/bin/qemu-system-x86_64 $target/usr/bin/true")
    return host


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a root, need no kernel, and find that KVM does not work."""
    toolchain.setup()
    monkeypatch.setattr(examination, "default_kernels", list)
    monkeypatch.setattr(examination, "probe", lambda _toolchain: Accelerator("tcg", "it hung"))


def examined(*arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    result = CliRunner().invoke(doctor.command, ["--json", *arguments])
    return result.exit_code, {check["name"]: check for check in json.loads(result.stdout)["checks"]}


def test_doctor_names_what_is_missing_and_its_remedy() -> None:
    status, checks = examined()
    assert status == 3
    assert checks["toolchain root"]["outcome"] == "bad"
    assert checks["toolchain root"]["remedy"] == "run: testbed setup"
    assert checks["archive"]["seen"].startswith("from this machine's apt")


@pytest.mark.usefixtures("ready")
def test_a_kvm_that_hangs_is_no_fault() -> None:
    status, checks = examined()
    assert status == 0
    assert checks["accelerator"]["outcome"] == "ok"
    assert checks["accelerator"]["seen"] == "tcg: it hung"


@pytest.mark.usefixtures("ready")
def test_a_qemu_without_vfio_user_is_not_enough(host: FakeHost) -> None:
    host.script("qemu-system-x86_64", "echo QEMU emulator version 10.0.9")
    status, checks = examined()
    assert status == 3
    assert checks["QEMU"]["remedy"] == "10.1 or newer is needed: testbed setup --refresh"


@pytest.mark.usefixtures("ready")
def test_missing_host_programs_do_not_hinder_who_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "build_programs", lambda: ["apt-get", "no-such-program", "no-other"])
    status, checks = examined()
    assert status == 0
    assert checks["host programs"]["outcome"] == "note"
    assert checks["host programs"]["remedy"] == "apt-get install no-such-program no-other"


@pytest.mark.usefixtures("ready")
def test_the_table_names_every_check() -> None:
    result = CliRunner().invoke(doctor.command, [])
    assert result.exit_code == 0
    for name in ("python", "cache", "memory", "bubblewrap", "QEMU", "kernels", "accelerator"):
        assert name in result.stdout


def test_set_up_shows_plain_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def set_up(*, refresh: bool, progress: toolchain.Progress) -> list[object]:
        progress("toolchain", f"refresh is {refresh}")
        return []

    monkeypatch.setattr(setup, "set_up", set_up)
    result = CliRunner().invoke(setup.command, ["--refresh"])
    assert result.exit_code == 0
    assert "toolchain: refresh is True\n" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("what", ["nics", "kernels", "scenarios", "variants", "rules", "settings"])
def test_lists_are_one_json_document_and_a_table(what: str) -> None:
    rows = json.loads(CliRunner().invoke(list_.command, [what, "--json"]).stdout)[what]
    assert rows
    table = CliRunner().invoke(list_.command, [what]).stdout
    key = next(iter(rows[0]))
    assert table.split()[0] == key
    assert all(row[key][:10] in table for row in rows)


def test_the_default_kernel_is_marked() -> None:
    rows = json.loads(CliRunner().invoke(list_.command, ["kernels", "--json"]).stdout)["kernels"]
    assert [row["name"] for row in rows if "(default)" in row["about"]] == [default_kernel()]
