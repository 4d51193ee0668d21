"""Running again what a result recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from testbed import nic
from testbed.kernel import resolve
from testbed.run import Request, Run, run
from testbed.scenario import from_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.result import Result
    from testbed.toolchain import Toolchain

__all__ = ["recorded_request", "replay"]


def replay(recorded: Result, toolchain: Toolchain, say: Callable[[str], None]) -> Run:
    """Run the recorded scenario on the recorded kernel, NIC and clock; see :func:`recorded_request`."""
    return run(recorded_request(recorded, toolchain, say))


def recorded_request(recorded: Result, toolchain: Toolchain, say: Callable[[str], None]) -> Request:
    """Return what a result is the result of.

    :param say: told where today's kernel is another than the recorded one.
    :raise UsageError: the result names something that does not exist here.
    """
    then = recorded.kernel
    asked = then.asked or "@variant=".join([then.name, *then.variants])
    kernel = resolve(asked, toolchain)
    if then.contents not in ([], [change.key for change in kernel.changes]):
        say("a change of the kernel, or the tree, is not what it was when the run was recorded")
    if (kernel.release, kernel.package) != (recorded.kernel.release, recorded.kernel.package):
        say(f"recorded on {recorded.kernel.package} ({recorded.kernel.release}), here is {kernel.package}")
    return Request(
        toolchain=toolchain,
        kernel=kernel,
        nic=nic.get(recorded.nic),
        scenario=from_json(msgspec.json.encode(recorded.program), "the recorded scenario"),
        clock=recorded.clock,
        rules=[rule.id for rule in recorded.rules],
        reproduce=recorded.reproduce,
    )
