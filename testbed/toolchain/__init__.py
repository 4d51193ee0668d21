"""The private Debian root with QEMU, compilers and kernel tools, and how programs are run in it.

images/toolchain.toml says what comes from where; ``setup`` builds the root, ``open_toolchain`` finds it.
"""

from testbed.toolchain.host import Progress, quiet
from testbed.toolchain.root import setup
from testbed.toolchain.sandbox import Toolchain, open_toolchain

__all__ = ["Progress", "Toolchain", "open_toolchain", "quiet", "setup"]
