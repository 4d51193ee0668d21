import os
from pathlib import Path

import pytest
from host_fakes import FakeHost

from testbed.errors import BuildError, HostError
from testbed.toolchain import open_toolchain
from testbed.toolchain.sandbox import RootToolchain, follow_links, qemu_version

LOADER = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = FakeHost(tmp_path, monkeypatch)
    host.script("bwrap", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    return host


@pytest.fixture
def toolchain(host: FakeHost, tmp_path: Path) -> RootToolchain:
    del host
    root = tmp_path / "made/root"
    for name in ("usr/bin/qemu-system-x86_64", "usr/bin/gcc-14", "usr/bin/sh", LOADER, "etc/alternatives/x"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "usr/bin/gcc").symlink_to("gcc-14")
    (root / "usr/bin/cc").symlink_to("/etc/alternatives/cc")
    (root / "etc/alternatives/cc").symlink_to("/usr/bin/gcc")
    (root / "lib64").symlink_to("usr/lib64")
    (root / "usr/lib64").symlink_to("lib/x86_64-linux-gnu")
    (tmp_path / "made/packages.txt").write_text("gcc 14\n")
    return RootToolchain(tmp_path / "made")


def test_links_are_followed_inside_the_root(toolchain: RootToolchain, tmp_path: Path) -> None:
    root = tmp_path / "made/root"
    assert toolchain.file("/usr/bin/cc") == root / "usr/bin/gcc-14"
    assert toolchain.file("/lib64/ld-linux-x86-64.so.2") == root / LOADER


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert not follow_links(tmp_path, "/a").exists()


def test_what_the_root_lacks_is_named(toolchain: RootToolchain) -> None:
    with pytest.raises(HostError, match="has no program spatch"):
        toolchain.argv(["spatch"])
    with pytest.raises(HostError, match="has no /usr/share/nothing"):
        toolchain.file("/usr/share/nothing")


def test_a_command_sees_only_what_was_named(toolchain: RootToolchain, tmp_path: Path) -> None:
    write = tmp_path / "read" / "write"
    argv = toolchain.argv(["gcc", "x.c"], read=[tmp_path / "read"], write=[write], cwd=write)
    text = " ".join(argv)
    outer, inner = f"--ro-bind {tmp_path}/read {tmp_path}/read", f"--bind {write} {write}"
    assert text.index(outer) < text.index(inner)
    assert text.endswith(f"--chdir {write} -- gcc x.c")
    for promise in ("--die-with-parent", "--unshare-net", "--unshare-pid", "--clearenv"):
        assert promise in argv


def test_a_path_named_for_both_may_be_written(toolchain: RootToolchain, tmp_path: Path) -> None:
    argv = toolchain.argv(["gcc"], read=[tmp_path], write=[tmp_path])
    assert argv[argv.index(str(tmp_path)) - 1] == "--bind"
    assert argv.count(str(tmp_path)) == 2


def test_a_failing_command_is_told_by_its_first_error(toolchain: RootToolchain) -> None:
    with pytest.raises(BuildError, match=r"sh failed \(exit status 7\): error: so"):
        toolchain.run(["sh", "-c", "echo error: so >&2; exit 7"], timeout_s=10)
    assert toolchain.run(["sh", "-c", "cat"], timeout_s=10, stdin=b"given") == "given"


def test_without_user_namespaces_qemu_runs_by_the_roots_own_loader(
    host: FakeHost, toolchain: RootToolchain
) -> None:
    host.script("bwrap", "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1")
    argv = toolchain.argv(["qemu-system-x86_64", "-M", "q35"])
    assert argv[1:4] == ["--pdeathsig", "KILL", "--"]
    assert str(toolchain.file(f"/{LOADER}")) in argv
    assert any(word.startswith("QEMU_MODULE_DIR=") for word in argv)
    assert argv[-2:] == ["-M", "q35"]
    with pytest.raises(HostError, match=r"gcc needs a sandbox.*No permissions to create"):
        toolchain.argv(["gcc"])


def test_the_hosts_own_tools_are_refused_with_all_that_is_amiss(host: FakeHost) -> None:
    for name in ("gcc", "make"):
        host.script(name, "")
    host.script("qemu-system-x86_64", "echo QEMU emulator version 7.2.0")
    with pytest.raises(HostError, match=r"QEMU 7\.2, older than 10\.1") as caught:
        open_toolchain("host")
    assert "gcc," not in caught.value.message


def test_a_host_with_everything_is_taken(host: FakeHost, tmp_path: Path) -> None:
    names = "bpftool busybox clang depmod gcc ld make pahole patch qemu-img spatch strip xz"
    for name in names.split():
        host.script(name, "")
    host.script("qemu-system-x86_64", "echo QEMU emulator version 10.1.2")
    toolchain = open_toolchain("host")
    assert toolchain.argv(["gcc", "-v"], cwd=tmp_path)[-2:] == [str(host.bin / "gcc"), "-v"]
    before = toolchain.identity
    host.script("gcc", "echo another")
    assert open_toolchain("host").identity != before
    with pytest.raises(HostError, match="nothing is not on this machine"):
        toolchain.argv(["nothing"])


@pytest.mark.parametrize(
    ("text", "version"), [("QEMU emulator version 11.1.3 (Debian)", (11, 1)), ("something", (0, 0))]
)
def test_qemu_tells_its_version(text: str, version: tuple[int, int]) -> None:
    assert qemu_version(text) == version


def test_the_environment_of_the_host_stays_outside(
    host: FakeHost, toolchain: RootToolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    del host
    monkeypatch.setenv("CFLAGS", "-O0")
    assert "CFLAGS" in os.environ
    assert not any("CFLAGS" in word for word in toolchain.argv(["gcc"]))
