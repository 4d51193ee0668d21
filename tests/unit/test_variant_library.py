"""The variants that are shipped, as files; that they apply and build is shown in tests/guest."""

import pytest

from testbed.kernel import known_variants
from testbed.kernel.variant import Variant


@pytest.mark.parametrize("variant", known_variants(), ids=lambda each: each.name)
def test_each_says_what_it_is_and_names_all_its_rules(variant: Variant) -> None:
    assert len(variant.about) > 20
    headers = [line for line in variant.file.read_text().splitlines() if line.startswith("@")]
    assert len(headers) == 2 * len(variant.rules())


def test_the_ring_full_family_is_there() -> None:
    names = {variant.name for variant in known_variants()}
    assert {"igb/ring-full-exit", "igb/ring-full-exit-naive", "igb/ring-full-ignored"} <= names
