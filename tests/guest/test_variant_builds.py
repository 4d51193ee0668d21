"""The shipped variants on the real thing: they apply, build, and load in the stock kernel."""

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.errors import BuildError
from testbed.image.cpio import archive
from testbed.kernel import Kernel, known_variants, resolve, with_variants
from testbed.kernel.bootable import bootable
from testbed.kernel.build import ModuleFolder, build_modules, make_modules
from testbed.kernel.variant import Variant
from testbed.toolchain import Toolchain, open_toolchain

VARIANTS = Path(__file__).parent / "variants"
BOOT_LIMIT_S = 240
FOLDER = "drivers/net/ethernet/intel/igb"
NICS = ("igb", "e1000e")
SHIPPED = [variant for variant in known_variants() if variant.driver in NICS]
INIT = """\
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
for module in {needed}; do /bin/busybox insmod /$module.ko || echo "REFUSED $module"; done
while read variant driver; do
    /bin/busybox insmod /variants/$variant/$driver.ko || echo "REFUSED $variant"
    note=$(/bin/busybox xxd -p -c 99 /sys/module/$driver/notes/.note.gnu.build-id)
    echo "LOADED $variant $(/bin/busybox ls /sys/module/$driver/drivers/pci:$driver | /bin/busybox grep -c :) $note"
    /bin/busybox rmmod $driver
done </list
/bin/busybox poweroff -f
"""


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return open_toolchain()


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return resolve("")


def modinfo(data: bytes, field: str) -> str:
    found = re.search(rb"\0" + field.encode() + rb"=([^\0]*)\0", data)
    assert found
    return found[1].decode()


def build_id(data: bytes) -> str:
    """Return the ELF note that stands for the build, in hexadecimal digits."""
    found = re.search(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0.{20}", data, re.DOTALL)
    assert found
    return found[0].hex()


def module_of(kernel: Kernel, driver: str) -> bytes:
    return kernel.module_closure([driver])[-1].data


def changed_source(kernel: Kernel, names: list[str], toolchain: Toolchain, into: Path) -> str:
    """Return igb_xsk.c with variants applied one after the other, without white space."""
    assert kernel.source
    shutil.copytree(kernel.source / "drivers/net/ethernet/intel/igb", into)
    for variant in known_variants():
        if variant.name in names:
            variant.apply(toolchain, into, FOLDER)
    return re.sub(r"\s+", " ", (into / "igb_xsk.c").read_text())


@pytest.mark.parametrize("variant", SHIPPED, ids=lambda each: each.name)
def test_a_variant_builds_a_module_of_the_stock_kernels_kind(kernel: Kernel, variant: Variant) -> None:
    stock = module_of(kernel, variant.driver)
    built = module_of(with_variants(kernel, [variant.name]), variant.driver)
    assert modinfo(built, "vermagic") == modinfo(stock, "vermagic")
    assert modinfo(built, "depends") == modinfo(stock, "depends")
    assert build_id(built) != build_id(stock)
    assert b".debug_info" not in built


def test_ignored_takes_the_exit_away_from_a_repaired_driver(
    kernel: Kernel, toolchain: Toolchain, tmp_path: Path
) -> None:
    text = changed_source(
        kernel, ["igb/ring-full-exit-naive", "igb/ring-full-ignored"], toolchain, tmp_path / "igb"
    )
    assert "return IGB_XDP_CONSUMED;" in text
    assert "return IGB_XDP_EXIT;" not in text
    assert "result = IGB_XDP_EXIT;" not in text


def test_the_right_repair_steps_past_the_refused_frame_before_it_leaves(
    kernel: Kernel, toolchain: Toolchain, tmp_path: Path
) -> None:
    text = changed_source(kernel, ["igb/ring-full-exit"], toolchain, tmp_path / "igb")
    (branch,) = re.findall(r"== IGB_XDP_EXIT\) \{(.*?)break; \}", text)
    assert re.fullmatch(
        r" failure = true; xsk_buff_free\(xdp\); total_packets\+\+; total_bytes \+= size;"
        r" if \(\+\+ntc == rx_ring->count\) ntc = 0; ",
        branch,
    )
    assert "if (result != IGB_XDP_EXIT) result = IGB_XDP_CONSUMED;" in text


def test_a_rule_that_matches_nothing_is_named(kernel: Kernel, toolchain: Toolchain, tmp_path: Path) -> None:
    assert kernel.source
    shutil.copytree(kernel.source / "drivers/net/ethernet/intel/igb", tmp_path / "igb")
    file = tmp_path / "half.cocci"
    file.write_text("// half\n@fits@\n@@\n- IGB_XDP_EXIT\n+ 4\n\n@misfits@\n@@\n- no_such_function();\n")
    with pytest.raises(BuildError, match=r"of half\.cocci, misfits matched nothing"):
        Variant("igb/half", file).apply(toolchain, tmp_path / "igb", FOLDER)


def test_a_broken_semantic_patch_is_told_with_its_line(toolchain: Toolchain, tmp_path: Path) -> None:
    file = tmp_path / "broken.cocci"
    file.write_text("@broken@\n@@\n- case X:\n")
    (tmp_path / "igb").mkdir()
    with pytest.raises(BuildError, match=r"broken\.cocci:3: .*parse error"):
        Variant("igb/broken", file).apply(toolchain, tmp_path / "igb", FOLDER)


def test_a_variant_is_the_same_module_as_one_compiled_from_nothing(
    kernel: Kernel, toolchain: Toolchain, tmp_path: Path
) -> None:
    assert kernel.source
    assert kernel.headers
    variant = Variant("igbvf/polls-once", VARIANTS / "igbvf" / "polls-once.cocci")
    folder = ModuleFolder(kernel.source, "drivers/net/ethernet/intel/igbvf")
    built = build_modules(kernel, kernel.headers, folder, [variant], toolchain)
    stock = build_modules(kernel, kernel.headers, folder, [], toolchain)
    folder.copy(tmp_path / "igbvf")
    variant.apply(toolchain, tmp_path / "igbvf", folder.path)
    make_modules(kernel.headers, tmp_path / "igbvf", toolchain)
    module = tmp_path / "igbvf" / "igbvf.ko"
    toolchain.run(["strip", "--strip-debug", str(module)], write=[module.parent], timeout_s=60)
    assert module.read_bytes() == built["igbvf"].read_bytes() != stock["igbvf"].read_bytes()


def test_every_variant_loads_in_the_stock_kernel_and_binds(
    kernel: Kernel, toolchain: Toolchain, tmp_path: Path
) -> None:
    changed = {each.name: with_variants(kernel, [each.name]) for each in SHIPPED}
    log = boot(kernel, changed, toolchain, tmp_path)
    assert "REFUSED" not in log
    for variant in SHIPPED:
        note = build_id(module_of(changed[variant.name], variant.driver))
        assert f"LOADED {variant.name} 1 {note}" in log


def boot(kernel: Kernel, changed: dict[str, Kernel], toolchain: Toolchain, directory: Path) -> str:
    """Boot a kernel with busybox alone, load each variant's driver in turn, and return what the console showed."""
    needed = [module for module in kernel.module_closure([*NICS]) if module.name not in NICS]
    files = {f"{module.name}.ko": (0o644, module.data) for module in needed}
    for variant in SHIPPED:
        data = module_of(changed[variant.name], variant.driver)
        files[f"variants/{variant.name}/{variant.driver}.ko"] = (0o644, data)
    files["list"] = (0o644, "".join(f"{each.name} {each.driver}\n" for each in SHIPPED).encode())
    files["bin/busybox"] = (0o755, toolchain.file("/usr/bin/busybox").read_bytes())
    files["init"] = (0o755, INIT.format(needed=" ".join(module.name for module in needed)).encode())
    files["proc/x"] = files["sys/x"] = (0o644, b"")
    initramfs = directory / "initramfs"
    initramfs.write_bytes(gzip.compress(archive(files, {"dev/console": (5, 1)}), compresslevel=1))
    image = bootable(kernel, toolchain)
    qemu = [
        *("qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot", "-machine", "q35,accel=tcg"),
        *("-cpu", "Nehalem", "-m", "256", "-kernel", str(image), "-initrd", str(initramfs)),
        *(
            "-append",
            "console=ttyS0 panic=-1 net.ifnames=0 tsc=reliable clocksource=tsc mitigations=off",
            "-serial",
            "stdio",
        ),
        *(
            word
            for hub, nic in enumerate(NICS)
            for word in (
                *("-netdev", f"hubport,id=wire{hub},hubid={hub}"),
                *("-device", f"{nic},netdev=wire{hub},romfile="),
            )
        ),
    ]
    argv = toolchain.argv(qemu, read=[image, initramfs])
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=BOOT_LIMIT_S, check=False
    )
    return done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
