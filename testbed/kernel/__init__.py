"""Where a kernel comes from, and how a variant of it is built and cached."""

from testbed.kernel.bootable import bootable
from testbed.kernel.kernel import Kernel, Module
from testbed.kernel.names import check_names, default_kernel, known_kernels, resolve
from testbed.kernel.variant import known_variants, with_variants

__all__ = [
    "Kernel",
    "Module",
    "bootable",
    "check_names",
    "default_kernel",
    "known_kernels",
    "known_variants",
    "resolve",
    "with_variants",
]
