import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from host_fakes import FakeHost

from testbed import setup
from testbed.errors import HostError
from testbed.kernel import Kernel
from testbed.toolchain import Progress, Toolchain


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = FakeHost(tmp_path, monkeypatch)
    host.mmdebstrap()
    monkeypatch.setattr(setup.image, "build", lambda _toolchain: Path("/nowhere"))
    monkeypatch.setattr(setup.kernel, "bootable", lambda _kernel, _toolchain: Path("/nowhere"))
    return host


def kernel_named(name: str) -> Kernel:
    nowhere = Path("/nowhere")
    return Kernel(
        name=name,
        release="7.1",
        package="linux-image 7.1-1",
        vmlinuz=nowhere,
        modules=nowhere,
        config=nowhere,
        headers=None,
        identity="0",
    )


def fetcher(began: threading.Event) -> Callable[..., Kernel]:
    def fetch(name: str, toolchain: Callable[[], Toolchain], *, refresh: bool, progress: Progress) -> Kernel:
        del refresh
        began.set()
        progress(name, toolchain().identity)
        return kernel_named(name)

    return fetch


def test_kernels_are_fetched_while_the_root_is_built(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()
    monkeypatch.setattr(setup.debian, "fetch", fetcher(began))
    ready = host.bin.parent / "fetching"
    host.mmdebstrap(before=f"while [ ! -e {ready} ]; do :; done")
    waiter = threading.Thread(target=lambda: began.wait(20) and ready.touch())
    waiter.start()
    kernels = setup.set_up()
    waiter.join()
    assert [kernel.name for kernel in kernels] == setup.default_kernels()


def test_what_was_resolved_is_written_down(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.debian, "fetch", fetcher(threading.Event()))
    setup.set_up()
    lock = tomllib.loads((host.bin.parent / "cache/toolchain.lock").read_text())
    assert lock["root"]["qemu-system-x86"] == "1:11.1.3"
    assert lock["kernel"]["debian:trixie"] == {
        "release": "7.1",
        "package": "linux-image",
        "version": "7.1-1",
        "identity": "0",
    }


def test_a_root_that_cannot_be_built_ends_it_all(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.debian, "fetch", fetcher(threading.Event()))
    host.mmdebstrap(before="echo 'E: broken' >&2; exit 1")
    with pytest.raises(HostError, match="mmdebstrap failed: E: broken"):
        setup.set_up()


def test_a_kernel_that_cannot_be_fetched_ends_it_and_the_root_stays(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, *_arguments: object, **_options: object) -> Kernel:
        raise HostError(f"no {name}", "wait")

    monkeypatch.setattr(setup.debian, "fetch", fail)
    with pytest.raises(HostError, match="no debian:trixie-backports"):
        setup.set_up()
    monkeypatch.setattr(setup.debian, "fetch", fetcher(threading.Event()))
    setup.set_up()
    assert host.count("mmdebstrap") == 1


def test_space_for_all_of_it_is_checked_first(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: type("Usage", (), {"free": 2_000_000_000}))
    with pytest.raises(HostError, match=r"testbed setup needs \d+ MB"):
        setup.set_up()
    assert host.count("mmdebstrap") == 0


def test_the_image_comes_last_and_every_kernel_is_unpacked(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    del host
    done: list[str] = []

    def build(toolchain: Toolchain) -> Path:
        done.append(f"image with {toolchain.identity}")
        return Path("/nowhere")

    def unpack(kernel: Kernel, _toolchain: Toolchain) -> Path:
        done.append(kernel.name)
        return Path("/nowhere")

    monkeypatch.setattr(setup.debian, "fetch", fetcher(threading.Event()))
    monkeypatch.setattr(setup.image, "build", build)
    monkeypatch.setattr(setup.kernel, "bootable", unpack)
    setup.set_up()
    assert done[0].startswith("image with ")
    assert done[1:] == setup.default_kernels()
