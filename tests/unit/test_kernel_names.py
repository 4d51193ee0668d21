import struct
from pathlib import Path

import pytest

from testbed.errors import HostError, UsageError
from testbed.kernel import default_kernel, known_kernels, resolve
from testbed.kernel.image import image_release
from testbed.kernel.names import parse


def write_image(path: Path, release: str = "7.1.0-test") -> Path:
    data = bytearray(0x1000)
    data[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", data, 0x20E, 0x300)
    text = f"{release} (a@b) #1\0".encode()
    data[0x500 : 0x500 + len(text)] = text
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (default_kernel(), [])),
        ("debian:trixie", ("debian:trixie", [])),
        ("@variant=igb/a", (default_kernel(), ["igb/a"])),
        ("debian:trixie@variant=igb/a@variant=igb/b", ("debian:trixie", ["igb/a", "igb/b"])),
    ],
)
def test_a_kernel_is_a_base_and_variants(text: str, expected: tuple[str, list[str]]) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["@", "@variant", "@variant=", "@patches=x", "debian:trixie@igb/a"])
def test_another_part_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected @variant=NAME, seen @"):
        parse(text)


def test_an_unknown_kernel_is_told_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match=r"unknown kernel 'debian:potato'; known are debian:trixie-backports,"
    ):
        resolve("debian:potato")


def test_an_image_is_resolved_by_its_files(tmp_path: Path) -> None:
    write_image(tmp_path / "vmlinuz")
    (tmp_path / "modules.dep").write_text("kernel/a.ko:\n")
    text = f"image:{tmp_path}/vmlinuz,{tmp_path}"
    kernel = resolve(text)
    assert (kernel.name, kernel.release, kernel.headers) == (text, "7.1.0-test", None)
    (tmp_path / "a.ko").write_bytes(b"rebuilt")
    assert resolve(text).identity != kernel.identity


@pytest.mark.parametrize("text", ["image:", "image:/x", "image:/nowhere/vmlinuz,/nowhere", "image:,/x"])
def test_an_image_that_is_not_there_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="image:"):
        resolve(text)


def test_an_image_without_modules_is_wrong_usage(tmp_path: Path) -> None:
    write_image(tmp_path / "vmlinuz")
    with pytest.raises(UsageError, match=r"no modules\.dep"):
        resolve(f"image:{tmp_path}/vmlinuz,{tmp_path}")


@pytest.mark.parametrize("data", [b"", b"\x7fELF" + bytes(4000), b"short"])
def test_a_file_that_is_no_kernel_image_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "vmlinuz").write_bytes(data)
    with pytest.raises(HostError, match="not an x86 kernel image: expected HdrS at 0x202") as caught:
        image_release(tmp_path / "vmlinuz")
    assert caught.value.exit_status == 3


def test_the_default_is_the_first_known() -> None:
    assert next(iter(known_kernels())) == default_kernel()
