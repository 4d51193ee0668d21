import struct
from pathlib import Path

import pytest

from testbed.errors import HostError, Unsupported, UsageError
from testbed.kernel import default_kernel, known_kernels, resolve
from testbed.kernel.image import image_release
from testbed.kernel.names import Spec, parse
from testbed.toolchain.recipe import IMAGES


def write_image(path: Path, release: str = "7.1.0-test") -> Path:
    data = bytearray(0x1000)
    data[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", data, 0x20E, 0x300)
    text = f"{release} (a@b) #1\0".encode()
    data[0x500 : 0x500 + len(text)] = text
    path.write_bytes(data)
    return path


PATCH = """\
--- a/drivers/net/x.c
+++ b/drivers/net/x.c
@@ -1 +1 @@
-a
+b
"""


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    file = tmp_path / "fix@home.patch"
    file.write_text(PATCH)
    return file


def test_an_empty_kernel_is_the_default_one() -> None:
    assert parse("") == Spec(default_kernel())
    assert parse("debian:trixie") == Spec("debian:trixie")


def test_changes_keep_their_order(patch: Path) -> None:
    variants = ("igb/ring-full-exit", "igb/ring-full-ignored")
    spec = parse(f"@variant={variants[1]}@patch={patch}@variant={variants[0]}@reverse-patch={patch}")
    assert spec.base == default_kernel()
    names = [variants[1], "fix@home.patch", variants[0], "fix@home.patch reversed"]
    assert [change.name for change in spec.changes] == names
    assert not spec.is_built


def test_options_and_debug_ask_for_a_kernel_that_is_built(tmp_path: Path) -> None:
    (tmp_path / "more.config").write_text("CONFIG_NET_SCHED=y\n")
    assert parse(f"debian:trixie@config={tmp_path}/more.config").configs == (tmp_path / "more.config",)
    assert [parse(f"@{part}").is_built for part in ("built", "debug")] == [True, True]


WRONG_PARTS = ["@", "@variant", "@variant=", "@patches=x", "debian:trixie@igb/a", "@patch=", "@debug=1"]


@pytest.mark.parametrize("text", WRONG_PARTS)
def test_another_part_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected .*, seen @.*write BASE\[@variant=NAME\]"):
        parse(text)


@pytest.mark.parametrize("part", ["patch", "reverse-patch", "config"])
def test_a_file_that_is_not_there_is_named(part: str) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*/nowhere: No such file"):
        parse(f"@{part}=/nowhere")


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


def test_modules_of_another_kernel_are_wrong_usage(tmp_path: Path) -> None:
    write_image(tmp_path / "vmlinuz")
    (tmp_path / "modules.dep").write_text("kernel/a.ko:\n")
    module = tmp_path / "a.ko"
    module.write_bytes(b"\0vermagic=6.12.1 SMP preempt mod_unload \0")
    with pytest.raises(UsageError, match=r"are of 6\.12\.1, the image is 7\.1\.0-test"):
        resolve(f"image:{tmp_path}/vmlinuz,{tmp_path}")
    module.write_bytes(b"\0vermagic=7.1.0-test SMP preempt mod_unload \0")
    assert resolve(f"image:{tmp_path}/vmlinuz,{tmp_path}").release == "7.1.0-test"


@pytest.mark.parametrize(
    ("option", "lost"),
    [("CONFIG_DEBUG_INFO_BTF", "cannot find polls"), ("CONFIG_XDP_SOCKETS", "it has no AF_XDP")],
)
def test_an_image_without_what_a_run_needs_is_unsupported(tmp_path: Path, option: str, lost: str) -> None:
    write_image(tmp_path / "vmlinuz")
    (tmp_path / "modules.dep").write_text("kernel/a.ko:\n")
    config = (IMAGES / "kernel/required.config").read_text()
    (tmp_path / "config-7.1.0-test").write_text(config.replace(f"{option}=y", f"# {option} is not set"))
    with pytest.raises(Unsupported, match=rf"without {option} .*: .*{lost}"):
        resolve(f"image:{tmp_path}/vmlinuz,{tmp_path}")
    (tmp_path / "config-7.1.0-test").write_text(config)
    assert resolve(f"image:{tmp_path}/vmlinuz,{tmp_path}").config == tmp_path / "config-7.1.0-test"


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
