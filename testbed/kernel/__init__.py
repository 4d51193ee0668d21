"""Where a kernel comes from, and how a changed one is built and cached."""

from testbed.kernel.bootable import bootable
from testbed.kernel.change import with_changes, with_variants
from testbed.kernel.kernel import Kernel, Module
from testbed.kernel.names import Spec, check_names, default_kernel, known_kernels, parse, resolve
from testbed.kernel.variant import known_variants

__all__ = [
    "Kernel",
    "Module",
    "Spec",
    "bootable",
    "check_names",
    "default_kernel",
    "known_kernels",
    "known_variants",
    "parse",
    "resolve",
    "with_changes",
    "with_variants",
]
