"""Boots kernels with emulated NICs and judges their drivers by the NAPI and AF_XDP contract."""
