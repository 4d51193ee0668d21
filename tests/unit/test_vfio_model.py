"""Device models by name: modules and files, and the process that waits for its beginning."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.guest.spare import ModelProcess, take, warm
from testbed.vfio_user.model import find_model, model_sources

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "rtl8139.py"


def test_a_model_is_found_in_a_module_and_in_a_file() -> None:
    assert find_model("testbed.dwmac:DwmacIntel").__name__ == "DwmacIntel"
    assert find_model(f"{EXAMPLE}:Rtl8139").declaration.identity.device == 0x8139


@pytest.mark.parametrize(
    "name",
    ["testbed.dwmac:Nothing", "testbed.dwmac.core:Core", "testbed.none:None", f"{EXAMPLE}x.py:X", "nothing"],
)
def test_what_is_no_model_is_refused(name: str) -> None:
    with pytest.raises((ImportError, ValueError)):
        find_model(name)


def test_a_model_is_made_of_its_folder_or_file_and_the_server() -> None:
    names = {path.name for path in model_sources("testbed.dwmac:DwmacIntel")}
    assert {"registers.py", "server.py", "session.py"} <= names
    assert {EXAMPLE.name, "server.py"} <= {path.name for path in model_sources(f"{EXAMPLE}:Rtl8139")}


@pytest.mark.parametrize("name", ["testbed.none:None", "/nowhere/none.py:None"])
def test_a_model_without_files_is_an_error(name: str) -> None:
    with pytest.raises(HostError, match="there is no device model"):
        model_sources(name)


def test_a_process_is_ready_before_it_is_needed_and_ends_when_closed() -> None:
    name = f"{EXAMPLE}:Rtl8139"
    warm(name)
    warm(name)
    process = take(name)
    other = take(name)
    assert process.pid != other.pid
    for each in (process, other):
        each.close()
        assert not Path(f"/proc/{each.pid}").exists()


def test_a_process_that_cannot_begin_leaves_its_reason() -> None:
    process = ModelProcess("testbed.none:None")
    assert process.control.recv(1) == b""
    assert process.last_words() == "ModuleNotFoundError: No module named 'testbed.none'"
    process.close()
