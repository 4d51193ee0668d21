"""Setting everything up: toolchain root, kernels, image; each is taken from the cache when it is there.

The kernels are downloaded and unpacked while the root is being built; only their last step needs it.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from testbed import image, kernel, toolchain
from testbed.cache import cache_dir, host_errors, locked
from testbed.kernel import debian
from testbed.toolchain import open_toolchain, quiet
from testbed.toolchain.host import need_space
from testbed.toolchain.recipe import load_recipe
from testbed.toolchain.root import current_root, installed

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.kernel import Kernel
    from testbed.toolchain import Progress, Toolchain

__all__ = ["default_kernels", "set_up"]

T = TypeVar("T")


def default_kernels() -> list[str]:
    """Return the names of the kernels that set-up fetches."""
    return [name for name, recipe in load_recipe().kernel.items() if recipe.fetched_by_setup]


def set_up(*, refresh: bool = False, progress: Progress = quiet) -> list[Kernel]:
    """Bring everything into the cache that runs need, and return the kernels.

    :param refresh: take the newest packages and kernels of the suites, also when there are some.
    :raise TestbedError: whatever hinders it first; what was finished by then is kept.
    """
    names = default_kernels()
    _check_space(names, refresh=refresh)
    root = _in_background(lambda: toolchain.setup(refresh=refresh, progress=progress))

    def when_built() -> Toolchain:
        root.result()
        return open_toolchain()

    fetched = [
        _in_background(_fetch_of(name, when_built, refresh=refresh, progress=progress)) for name in names
    ]
    progress("toolchain", f"ready: {root.result().name}")
    kernels = [future.result() for future in fetched]
    write_lock(kernels)
    progress("image", "building agent and observer")
    image.build(open_toolchain())
    for each in kernels:
        kernel.bootable(each, open_toolchain())
    progress("image", "ready")
    return kernels


def _fetch_of(
    name: str, when_built: Callable[[], Toolchain], *, refresh: bool, progress: Progress
) -> Callable[[], Kernel]:
    return lambda: debian.fetch(name, when_built, refresh=refresh, progress=progress)


def _check_space(names: list[str], *, refresh: bool) -> None:
    """Check the room for all of it before any of it is begun.

    :raise HostError: there is too little; the message says how much is needed.
    """
    recipe = load_recipe()
    needed = recipe.root.space_mb if refresh or current_root() is None else 0
    needed += sum(recipe.source.space_mb for name in names if refresh or debian.cached(name) is None)
    need_space(cache_dir(), needed, "testbed setup")


def write_lock(kernels: list[kernel.Kernel]) -> None:
    """Write what was resolved to toolchain.lock in the cache, as TOML: versions of packages and kernels."""
    root = current_root()
    lines = ["# What images/toolchain.toml was resolved to; written by testbed setup.", "", "[root]"]
    lines += [f'"{name}" = "{version}"' for name, version in (installed(root) if root else {}).items()]
    for each in kernels:
        package, _, version = each.package.partition(" ")
        lines += ["", f'[kernel."{each.name}"]', f'release = "{each.release}"', f'package = "{package}"']
        lines += [f'version = "{version}"', f'identity = "{each.identity}"']
    lock = cache_dir() / "toolchain.lock"
    with host_errors(lock), locked("toolchain"):
        fresh = lock.with_name(".toolchain.lock.new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(lock)


def _in_background(work: Callable[[], T]) -> Future[T]:
    """Start ``work`` in a thread that ends with the process: neither Ctrl-C nor an error waits for it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the result
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
