"""Counters of coverage in memory that QEMU, this process and libFuzzer share: the one place that knows Atheris inside.

libFuzzer takes two tables that stand for compiled code: 8-bit counters, and as many program counters. Both are
registered by the functions that instrumented code calls, which Atheris' extension exports. libFuzzer clears the
counters before each execution and reads them after it.
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
import sys
from typing import TYPE_CHECKING, Self

import numpy as np

from testbed.errors import HostError

if TYPE_CHECKING:
    from types import TracebackType

    import numpy.typing as npt

__all__ = ["Counters", "register"]

_INIT = "__sanitizer_cov_8bit_counters_init"
_PCS = "__sanitizer_cov_pcs_init"
_kept: list[object] = []  # libFuzzer reads these tables as long as the process lives


class Counters:
    """``count`` bytes of shared memory, a counter each.

    ``fd`` is what another process maps; ``values`` is a view, shape (count,).
    """

    def __init__(self, count: int) -> None:
        self.fd = os.memfd_create("coverage", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, count)
        self._map = mmap.mmap(self.fd, count)
        self.values: npt.NDArray[np.uint8] = np.frombuffer(self._map, dtype=np.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.fd)

    @property
    def address(self) -> int:
        """Return where they lie in this process."""
        return int(self.values.ctypes.data)


def register(counters: Counters, addresses: npt.NDArray[np.uint64]) -> None:
    """Let libFuzzer take the counters for its own; before it starts.

    :param addresses: shape (count,), distinct and not 0: what it calls the counters.
    :raise HostError: Atheris is missing, or this release of it is made otherwise.
    """
    library = ctypes.CDLL(_libfuzzer())
    try:
        init, pcs = getattr(library, _INIT), getattr(library, _PCS)
    except AttributeError as error:
        raise HostError(
            f"this release of Atheris does not export {_INIT} and {_PCS}", "install atheris 3.0 or 3.1"
        ) from error
    table = np.zeros((len(counters.values), 2), dtype=np.uint64)
    table[:, 0] = addresses
    start, count = counters.address, len(counters.values)
    init(ctypes.c_void_p(start), ctypes.c_void_p(start + count))
    first = int(table.ctypes.data)
    pcs(ctypes.c_void_p(first), ctypes.c_void_p(first + table.nbytes))
    _kept.extend((counters, table))


def _libfuzzer() -> str:
    """Load libFuzzer as Atheris does, and return its file.

    It finds custom mutators as global symbols of what was loaded before it. Its own must not be global: Atheris would
    take it for one that was preloaded.
    """
    flags = sys.getdlopenflags()
    try:
        sys.setdlopenflags(flags | os.RTLD_GLOBAL)
        importlib.import_module("atheris.custom_mutator")
        importlib.import_module("atheris.custom_crossover")
        sys.setdlopenflags(flags)
        return str(importlib.import_module("atheris.core_with_libfuzzer").__file__)
    except ImportError as error:
        raise HostError(
            f"fuzzing needs Atheris 3.0 or 3.1: {error}", "pip install 'testbed[fuzz]'"
        ) from error
    finally:
        sys.setdlopenflags(flags)
