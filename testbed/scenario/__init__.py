"""Scenarios: what is done to a driver, as users write it, as the agent runs it.

:func:`load` reads one, :func:`compile_program` makes the agent's program of it, :func:`required` says what it
needs of NIC, driver and kernel.
"""

from __future__ import annotations

from testbed.scenario.check import check_rules
from testbed.scenario.compile import Capability, Program, compile_program, fitted, required
from testbed.scenario.jitter import jittered
from testbed.scenario.model import Scenario, canonical_json
from testbed.scenario.settings import SettingRow, Settings, settings_table
from testbed.scenario.store import Entry, apply_settings, from_json, library, load, load_text, save
from testbed.scenario.unroll import device_steps, modules_of

__all__ = [
    "Capability",
    "Entry",
    "Program",
    "Scenario",
    "SettingRow",
    "Settings",
    "apply_settings",
    "canonical_json",
    "check_rules",
    "compile_program",
    "device_steps",
    "fitted",
    "from_json",
    "jittered",
    "library",
    "load",
    "load_text",
    "modules_of",
    "required",
    "save",
    "settings_table",
]
