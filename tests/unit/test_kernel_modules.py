import gzip
import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import HostError, Unsupported
from testbed.kernel import Kernel
from testbed.kernel.kernel import plain_name, read_module

FILES = {
    "kernel/a/igb.ko.xz": lzma.compress(b"igb"),
    "kernel/a/dca.ko": b"dca",
    "kernel/a/i2c-algo-bit.ko.gz": gzip.compress(b"i2c"),
    "kernel/a/i2c-core.ko": b"core",
}
DEPENDENCIES = """\
kernel/a/igb.ko.xz: kernel/a/dca.ko kernel/a/i2c-algo-bit.ko.gz kernel/a/i2c-core.ko
kernel/a/dca.ko:
kernel/a/i2c-algo-bit.ko.gz: kernel/a/i2c-core.ko
kernel/a/i2c-core.ko:
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    for name, data in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "modules.dep").write_text(DEPENDENCIES)
    (tmp_path / "modules.builtin").write_text("kernel/drivers/virtio/virtio_pci.ko\n")
    return Kernel(
        name="test",
        release="1.0",
        package="",
        vmlinuz=tmp_path / "vmlinuz",
        modules=tmp_path,
        config=tmp_path / "config",
        headers=None,
        identity="0",
    )


def test_modules_come_after_what_they_need(kernel: Kernel) -> None:
    closure = kernel.module_closure(["igb"])
    assert [(module.name, module.data) for module in closure] == [
        ("i2c_core", b"core"),
        ("i2c_algo_bit", b"i2c"),
        ("dca", b"dca"),
        ("igb", b"igb"),
    ]


def test_each_module_is_listed_once(kernel: Kernel) -> None:
    names = [module.name for module in kernel.module_closure(["i2c-algo-bit", "igb", "i2c_core"])]
    assert names == ["i2c_core", "i2c_algo_bit", "dca", "igb"]


def test_what_is_built_in_needs_no_loading(kernel: Kernel) -> None:
    assert kernel.module_closure(["virtio-pci"]) == []


def test_an_unknown_module_is_unsupported(kernel: Kernel) -> None:
    with pytest.raises(Unsupported, match=r"kernel test \(1\.0\) has no module nix"):
        kernel.module_closure(["igb", "nix"])


def test_a_replaced_module_takes_the_stock_ones_place(kernel: Kernel, tmp_path: Path) -> None:
    built = tmp_path / "built.ko"
    built.write_bytes(b"variant")
    changed = replace(kernel, replaced={"igb": built})
    assert changed.module_closure(["igb"])[-1].data == b"variant"
    assert changed.module_path("igb") == built
    assert kernel.module_path("igb") == tmp_path / "kernel/a/igb.ko.xz"


def test_a_damaged_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.ko.xz").write_bytes(b"not xz")
    with pytest.raises(HostError, match=r"cannot read the module .*x\.ko\.xz"):
        read_module(tmp_path / "x.ko.xz")


@pytest.mark.parametrize(
    "path", ["kernel/net/dwmac-intel.ko.xz", "dwmac-intel", "dwmac_intel", "x/dwmac_intel.ko"]
)
def test_names_are_the_kernels(path: str) -> None:
    assert plain_name(path) == "dwmac_intel"
