import io
import lzma
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from host_fakes import FakeHost
from test_toolchain_accelerator import FakeToolchain

from testbed.errors import BuildError, HostError
from testbed.kernel import debian
from testbed.toolchain import Toolchain
from testbed.toolchain.recipe import load_recipe

RELEASE = "7.1+deb13-amd64"
SOURCES = (
    "drivers/net/ethernet/intel/igb/igb_xsk.c",
    "drivers/net/ethernet/stmicro/stmmac/stmmac_main.c",
    "tools/testing/kunit/kunit_parser.py",
)


def package(directory: Path, name: str, files: dict[str, bytes], links: dict[str, str] | None = None) -> None:
    """Make a Debian package of some files."""
    tree = directory / f"tree-{name}"
    for path, data in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(data)
    for path, target in (links or {}).items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).symlink_to(target)
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 7.1-1\nArchitecture: amd64\nMaintainer: a <a@b>\nDescription: x\n"
    )
    target = directory / f"{name}_7.1-1_amd64.deb"
    subprocess.run(["dpkg-deb", "-Znone", "-b", str(tree), str(target)], check=True, capture_output=True)


def source_tar(*extra: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("Makefile", *SOURCES, *extra):
            entry = tarfile.TarInfo(f"linux-source-7.1/{name}")
            entry.size = len(name)
            tar.addfile(entry, io.BytesIO(name.encode()))
    return lzma.compress(packed.getvalue(), preset=0)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """Offer a kernel as the newer packages have it, with its image below lib/modules."""
    host = FakeHost(tmp_path, monkeypatch)
    debs = tmp_path / "debs"
    debs.mkdir()
    modules, amd64, common = (
        f"usr/lib/modules/{RELEASE}",
        f"usr/src/linux-headers-{RELEASE}",
        "linux-headers-7.1-common",
    )
    package(
        debs,
        f"linux-binary-{RELEASE}",
        {f"{modules}/vmlinuz": b"image", f"{modules}/config": b"CONFIG_A=y\n"},
    )
    package(
        debs, f"linux-modules-{RELEASE}", {f"{modules}/kernel/a.ko": b"a"}, {f"{modules}/build": "/usr/src/x"}
    )
    kbuild = {"scripts": "../../lib/linux-kbuild-7.1/scripts"}
    package(
        debs,
        f"linux-headers-{RELEASE}",
        {f"{amd64}/Makefile": b"old"},
        {f"{amd64}/scripts": kbuild["scripts"]},
    )
    package(
        debs, common, {f"usr/src/{common}/Makefile": b"top"}, {f"usr/src/{common}/scripts": kbuild["scripts"]}
    )
    package(debs, "linux-kbuild-7.1", {"usr/lib/linux-kbuild-7.1/scripts/mod": b"modpost"})
    package(debs, "linux-source-7.1", {"usr/src/linux-source-7.1.tar.xz": source_tar()})
    serve(host, debs)
    return host


def serve(host: FakeHost, debs: Path) -> None:
    host.script(
        "apt-get",
        f"""case "$*" in
        indextargets*) echo http://mirror.test/debian/ trixie main Debian;;
        *--print-uris*)
            for deb in {debs}/*.deb libc6_1_amd64.deb; do echo "'http://m/x' ${{deb##*/}} 1 SHA256:0"; done;;
        download*) cp {debs}/*.deb .;;
        esac""",
    )


class Depmod(FakeToolchain):
    """Writes modules.dep where depmod would."""

    def __init__(self) -> None:
        super().__init__("")

    def argv(self, command, *, read=(), write=(), cwd=None):  # type: ignore[no-untyped-def]
        del read, cwd
        assert list(command[:2]) == ["depmod", "-b"]
        return ["sh", "-c", f"echo 'kernel/a.ko:' >{write[0]}/lib/modules/{command[3]}/modules.dep"]


@pytest.fixture
def toolchain() -> Callable[[], Toolchain]:
    return Depmod


def test_a_kernel_is_unpacked_and_found_again_offline(
    host: FakeHost, toolchain: Callable[[], Toolchain]
) -> None:
    fetched = debian.fetch("debian:trixie", toolchain)
    assert fetched.release == RELEASE
    assert fetched.package == f"linux-binary-{RELEASE} 7.1-1"
    assert fetched.vmlinuz.read_bytes() == b"image"
    assert fetched.config.read_text() == "CONFIG_A=y\n"
    assert [module.data for module in fetched.module_closure(["a"])] == [b"a"]
    host.script("apt-get", "exit 99")
    assert debian.fetch("debian:trixie", toolchain) == fetched
    assert debian.cached("debian:trixie") == fetched


def test_a_kernel_fetched_for_fewer_folders_is_fetched_again(
    host: FakeHost, toolchain: Callable[[], Toolchain], monkeypatch: pytest.MonkeyPatch
) -> None:
    del host
    recipe = load_recipe()
    older = msgspec.structs.replace(recipe.source, folders=recipe.source.folders[:1])
    with monkeypatch.context() as patch:
        patch.setattr(debian, "load_recipe", lambda: msgspec.structs.replace(recipe, source=older))
        first = debian.fetch("debian:trixie", toolchain)
    assert debian.cached("debian:trixie") == first
    second = debian.fetch("debian:trixie", toolchain)
    assert second.identity != first.identity
    assert second.source is not None
    assert (second.source / SOURCES[2]).exists()
    assert first.vmlinuz.exists()


def test_headers_find_their_kbuild_wherever_they_lie(
    host: FakeHost, toolchain: Callable[[], Toolchain]
) -> None:
    del host
    headers = debian.fetch("debian:trixie", toolchain).headers
    assert headers is not None
    assert (headers / "scripts/mod").read_bytes() == b"modpost"
    assert (headers.parent / "linux-headers-7.1-common/scripts/mod").read_bytes() == b"modpost"
    assert "$(here)/../linux-headers-7.1-common/Makefile" in (headers / "Makefile").read_text()


def test_only_the_drivers_of_the_source_are_kept(host: FakeHost, toolchain: Callable[[], Toolchain]) -> None:
    del host
    kernel = debian.fetch("debian:trixie", toolchain)
    assert kernel.source is not None
    files = sorted(
        str(path.relative_to(kernel.source)) for path in kernel.source.rglob("*") if path.is_file()
    )
    assert files == list(SOURCES)
    left = {path.name for path in kernel.source.parent.iterdir()}
    assert left == {"config", "kernel.json", "lib", "source", "src", "vmlinuz"}


def test_a_kernel_with_its_image_in_boot_is_arranged_alike(
    host: FakeHost, toolchain: Callable[[], Toolchain], tmp_path: Path
) -> None:
    debs = tmp_path / "debs"
    (debs / f"linux-binary-{RELEASE}_7.1-1_amd64.deb").unlink()
    boot = {f"boot/vmlinuz-{RELEASE}": b"image", f"boot/config-{RELEASE}": b"c"}
    package(debs, f"linux-image-{RELEASE}", boot)
    serve(host, debs)
    kernel = debian.fetch("debian:trixie", toolchain)
    assert (kernel.vmlinuz.read_bytes(), kernel.config.read_bytes()) == (b"image", b"c")
    assert kernel.package.startswith(f"linux-image-{RELEASE} ")


def test_a_source_without_a_wanted_folder_is_an_error(host: FakeHost, tmp_path: Path) -> None:
    del host
    (file,) = (tmp_path / "debs").glob("linux-source*.deb")
    with pytest.raises(BuildError, match="holds no drivers/nothing/"):
        debian.extract_folders(file, ["drivers/nothing"], tmp_path / "into")


def test_a_damaged_package_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "linux-source.deb").write_bytes(b"no package")
    with pytest.raises(BuildError, match=r"linux-source\.deb"):
        debian.extract_folders(tmp_path / "linux-source.deb", ["drivers"], tmp_path / "into")


def test_a_fetch_that_fails_leaves_no_kernel(host: FakeHost, toolchain: Callable[[], Toolchain]) -> None:
    host.script(
        "apt-get",
        """case "$*" in indextargets*) echo http://mirror.test/debian/ trixie main Debian; exit;; esac
        echo "E: Failed to fetch x  Could not connect to m" >&2; exit 100""",
    )
    with pytest.raises(HostError, match="cannot reach the Debian archive"):
        debian.fetch("debian:trixie", toolchain)
    assert debian.cached("debian:trixie") is None
