"""Products of kernels, variants, NICs, scenarios, clocks and seeds: which runs they are, and how they are run."""

from testbed.matrix.done import Done
from testbed.matrix.pool import run_all
from testbed.matrix.product import Product, orders, read_product, shard

__all__ = ["Done", "Product", "orders", "read_product", "run_all", "shard"]
