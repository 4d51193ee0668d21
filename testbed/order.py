"""What is asked for, in words: plain data that another process can take and a command line can repeat."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from testbed import nic as nics
from testbed.errors import Unsupported
from testbed.guest import Clock
from testbed.kernel import parse, resolve
from testbed.rules import all_rules, load_waivers, rule_named
from testbed.run import Request, check_commands
from testbed.scenario import apply_settings, jittered, load
from testbed.toolchain import open_toolchain
from testbed.toolchain.host import quiet

if TYPE_CHECKING:
    from testbed.scenario import Scenario
    from testbed.toolchain.host import Progress

__all__ = ["Order"]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One run, by names.

    :param scenario: a name of the library, or a file.
    :param kernel: a KERNEL with its changes; nothing is the newest of Debian.
    :param settings: as after ``--set``.
    :param rules: judge by these only; all when empty.
    :param jitter: seed of a variation.
    :param waivers: a file of more waivers.
    :param timeout_s: limit in host time for the scenario itself.
    """

    scenario: str
    nic: str
    kernel: str = ""
    clock: Clock | None = None
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    rules: tuple[str, ...] = ()
    jitter: int | None = None
    waivers: str = ""
    timeout_s: float = 60.0
    toolchain: Literal["root", "host"] = "root"

    def request(self, progress: Progress = quiet, scenario: Scenario | None = None) -> Request:
        """Resolve every name, and build what the kernel needs.

        :param progress: told what is built, and why.
        :param scenario: the scenario of that name, where somebody has read it already.
        :raise UsageError: one of them is unknown, before anything is built or booted.
        """
        nic = nics.get(self.nic)
        rules = [rule_named(name).id for name in self.rules]
        scenario = apply_settings(scenario or load(self.scenario, set(all_rules())), self.settings)
        with suppress(Unsupported):  # that is a result, not a wrong name
            check_commands(nic, scenario)
        if self.jitter is not None:
            scenario = jittered(scenario, self.jitter)
        more = load_waivers(Path(self.waivers), drivers=nics.drivers()) if self.waivers else []
        spec = parse(self.kernel)
        toolchain = open_toolchain(self.toolchain)
        return Request(
            toolchain=toolchain,
            kernel=resolve(spec, toolchain, progress),
            nic=nic,
            scenario=scenario,
            clock=self.clock,
            rules=rules,
            waivers=load_waivers() + more,
            timeout_s=self.timeout_s,
            reproduce=self.command(),
        )

    def command(self) -> str:
        """Return the command line that asks for one such run."""
        words = ["testbed", "run", self.scenario, "--nic", self.nic]
        words += ["--kernel", self.kernel] if self.kernel else []
        words += ["--clock", self.clock] if self.clock else []
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value}"]
        for name in self.rules:
            words += ["--rule", name]
        words += ["--jitter", str(self.jitter)] if self.jitter is not None else []
        words += ["--waivers", self.waivers] if self.waivers else []
        words += ["--toolchain", self.toolchain] if self.toolchain != "root" else []
        return shlex.join(words)
