"""Boots kernels with emulated NICs and judges their drivers by the NAPI and AF_XDP contract."""

import os

# numpy's BLAS starts a thread for each core, which waits for work by spinning; there is no linear algebra here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
