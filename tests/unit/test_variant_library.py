"""The variants that are shipped, as files; that they apply and build is shown in tests/guest."""

import pytest

from testbed.kernel import known_variants
from testbed.kernel.variant import Variant
from testbed.rules import all_rules

BY_NAME = {variant.name: variant for variant in known_variants()}


@pytest.mark.parametrize("variant", BY_NAME.values(), ids=lambda each: each.name)
def test_each_says_what_it_is_and_names_all_its_rules(variant: Variant) -> None:
    assert len(variant.about) > 20
    headers = [line for line in variant.file.read_text().splitlines() if line.startswith("@")]
    assert len(headers) == 2 * len(variant.rules())


@pytest.mark.parametrize("variant", BY_NAME.values(), ids=lambda each: each.name)
def test_each_names_rules_once_and_a_control_of_the_same_driver(variant: Variant) -> None:
    assert len(set(variant.violates)) == len(variant.violates)
    assert set(variant.violates) <= set(all_rules())
    if variant.control:
        assert variant.violates
        assert BY_NAME[variant.control].driver == variant.driver


def test_the_ring_full_family_is_judged_against_its_repair() -> None:
    assert BY_NAME["igb/ring-full-exit"].violates == ()
    assert BY_NAME["igb/ring-full-exit-naive"].control == "igb/ring-full-exit"
    assert BY_NAME["igb/ring-full-ignored"].control == "igb/ring-full-exit"
    assert BY_NAME["igb/ring-full-exit"].control is None


def test_every_regression_of_the_two_drivers_is_there() -> None:
    assert {
        "e1000e/complete-twice",
        "e1000e/no-complete",
        "e1000e/over-budget",
        "e1000e/stop-early",
        "igb/budget-zero-minus-one",
        "igb/budget-zero-unlimited",
        "igb/carrier-down-repolls",
        "igb/complete-and-return-budget",
        "igb/descriptors-counted",
        "igb/enable-irq-before-napi",
        "igb/flush-after-complete",
        "igb/flush-missing",
        "igb/need-wakeup-cleared",
        "igb/refill-result-inverted",
        "igb/ring-full-exit",
        "igb/ring-full-exit-naive",
        "igb/ring-full-ignored",
        "igb/xmit-zc-underflow",
    } <= set(BY_NAME)
