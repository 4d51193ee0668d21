"""What a matrix is a product of, as flags or a TOML file say it, and the runs that it comes to."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from testbed import nic as nics
from testbed.errors import UsageError
from testbed.guest import Clock
from testbed.kernel import check_names
from testbed.kernel.variant import find_variant
from testbed.order import Order
from testbed.rules import all_rules
from testbed.scenario import library, load

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from testbed.scenario import Scenario

__all__ = ["Product", "orders", "read_product", "read_scenarios", "shard"]

Names = Annotated[tuple[str, ...], Meta(min_length=1)]


class Product(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The factors of a matrix; each has at least one member.

    :param kernels: KERNELs; the empty one is the newest of Debian.
    :param variants: changes of a driver; the empty one is none. A variant goes with the NICs of its driver only.
    :param scenarios: names of the library, or files; the whole library when it is left out.
    :param clocks: the clock that suits the accelerator when it is left out.
    :param seeds: of jitter; without them the scenarios run as they are written.
    """

    nics: Names
    kernels: Names = ("",)
    variants: Names = ("",)
    scenarios: Names = ("all",)
    clocks: Annotated[tuple[Clock, ...], Meta(min_length=1)] | None = None
    seeds: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1)] | None = None
    timeout_s: Annotated[float, Meta(ge=1, le=86400)] = 60.0


def read_product(path: Path) -> Product:
    """Return the product that a TOML file describes.

    :raise UsageError: there is no such file, or it is not one of these; says which key and what was expected.
    """
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Product)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "give a TOML file, or flags") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        keys = ", ".join(Product.__struct_fields__)
        raise UsageError(f"{path}: {error}", f"a matrix has the keys {keys}") from error


def orders(of: Product) -> list[Order]:
    """Return the runs of a product; those that share a guest stand together.

    :raise UsageError: a name is unknown, or nothing is left of the product.
    """
    kernels = [
        (f"{kernel}@variant={variant}" if variant else kernel, variant)
        for kernel, variant in product(of.kernels, of.variants)
    ]
    for kernel, _ in kernels:
        check_names(kernel)
    scenarios = _scenarios(of)
    found = [
        Order(scenario=scenario, nic=nic, kernel=kernel, clock=clock, jitter=seed, timeout_s=of.timeout_s)
        for nic, (kernel, variant), clock in product(of.nics, kernels, of.clocks or (None,))
        if _fits(variant, nic)
        for scenario, seed in product(scenarios, of.seeds or (None,))
    ]
    if not found:
        raise UsageError(
            f"nothing is left of the product: {', '.join(of.variants)} change other drivers than those of "
            f"{', '.join(of.nics)}",
            "see `testbed list variants`",
        )
    return found


def read_scenarios(of: Iterable[Order]) -> dict[str, Scenario]:
    """Return the scenario behind each name in the orders.

    :raise UsageError: one cannot be read any more.
    """
    rules = set(all_rules())
    return {name: load(name, rules) for name in {order.scenario for order in of}}


def shard(of: list[Order], number: int, shards: int) -> list[Order]:
    """Return the ``number``-th of ``shards`` parts, from 1; each NIC and kernel is spread over all."""
    return of[number - 1 :: shards]


def _scenarios(of: Product) -> list[str]:
    names = [
        each for name in of.scenarios for each in ([e.name for e in library()] if name == "all" else [name])
    ]
    for name in names:
        load(name, set(all_rules()))
    return names


def _fits(variant: str, nic: str) -> bool:
    """Tell whether a variant changes what this NIC runs on: its driver, or the kernel's core."""
    changed = find_variant(variant).driver if variant else ""
    return changed == nics.get(nic).driver or changed not in nics.drivers()
