"""What several tests of the command line share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from victims import Cache

from testbed.cache import cache_dir

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = """\
name: one-burst
settings: {rx_ring: 64, tx_ring: 64, umem_chunks: 256, fill_entries: 256, rx_entries: 64}
steps:
  - fill: all
  - wakeup: rx
  - inject: {count: 32, bytes: 64}
  - sleep_us: 2000
  - rx_drain: all
"""


@pytest.fixture(scope="session")
def cache() -> Cache:
    """Return the ordinary cache."""
    return Cache(cache_dir())


@pytest.fixture(scope="session")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a small scenario that passes."""
    file = tmp_path_factory.mktemp("scenario") / "one-burst.yaml"
    file.write_text(SCENARIO)
    return file
