"""The fuzz targets: a short run is clean, and a planted fault is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"
LIMIT_S = 60
# What is taken out of the server.
FAULTS = {
    "offsets in a region": "t.Session._check = lambda *_: None",
    "the end of a range of memory": """
find = t.GuestMemory._find
t.GuestMemory._find = lambda self, address, length: find(self, address, min(length, 0))
""",
}


def fuzz(
    target: str, runs: int, kept: Path, fault: str = "", seed: int = 1
) -> subprocess.CompletedProcess[str]:
    """Run a target in a process of its own; the same seed gives the same inputs.

    :param kept: where libFuzzer leaves an input that fails.
    """
    code = f"import sys; sys.path.insert(0, {str(FUZZ)!r}); import {target} as t\n{fault}\nt.main()"
    options = [
        f"-runs={runs}",
        f"-seed={seed}",
        "-max_len=600",
        "-len_control=0",
        f"-artifact_prefix={kept}/",
    ]
    return subprocess.run(
        [sys.executable, "-c", code, *options], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_a_short_run_of_the_protocol_is_clean(tmp_path: Path) -> None:
    done = fuzz("vfio_user_protocol", 1500, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done 1500 runs" in done.stderr


@pytest.mark.parametrize("fault", FAULTS)
def test_a_check_that_is_missing_is_found(fault: str, tmp_path: Path) -> None:
    done = fuzz("vfio_user_protocol", 20_000, tmp_path, FAULTS[fault])
    assert done.returncode != 0, f"{fault}: not found"
    assert "AssertionError" in done.stderr + done.stdout


# A transmit channel that follows a frame's descriptors round and round the ring until one says it is the last.
ENDLESS = """
gather = t.Transmitter._gather
t.Transmitter._gather = lambda self, ring, descriptors, left: gather(self, ring, descriptors, 1 << 60)
"""


def test_a_short_run_of_the_model_is_clean(tmp_path: Path) -> None:
    done = fuzz("dwmac_model", 1500, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done 1500 runs" in done.stderr


def test_an_endless_loop_over_descriptors_is_found(tmp_path: Path) -> None:
    done = fuzz("dwmac_model", 20_000, tmp_path, ENDLESS, seed=2)
    assert done.returncode != 0
    assert "Overtime" in done.stderr + done.stdout


# What is taken out of those who read bytes from others.
HOST_FAULTS = {
    "scenario_parser": """
load = t.load_text
t.load_text = lambda text, origin: load(text, origin) if text.isascii() else 1 / 0
""",
    "agent_channel": "t.End.of = classmethod(lambda cls, message: cls(*cls.LAYOUT.unpack(message.payload)))\n"
    "t.DECODERS[t.MessageType.END] = t.End.of",
    "trace_decoder": "t.decode_events = lambda data: t.np.frombuffer(data, dtype=t.EVENT)",
}


@pytest.mark.parametrize("target", HOST_FAULTS)
def test_a_short_run_on_bytes_of_others_is_clean(target: str, tmp_path: Path) -> None:
    done = fuzz(target, 150, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done 150 runs" in done.stderr


@pytest.mark.parametrize("target", HOST_FAULTS)
def test_a_reader_that_does_not_check_is_found(target: str, tmp_path: Path) -> None:
    done = fuzz(target, 3000, tmp_path, HOST_FAULTS[target])
    assert done.returncode != 0, done.stderr[-1000:]
