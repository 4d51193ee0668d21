"""Frames of the user's own: scapy expressions, captures and hexadecimal text all become bytes when a scenario is read.

So what was run stands in the result, byte for byte, whatever becomes of the capture or of scapy's defaults.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from testbed.scenario.expression import ExpressionError, frames_of
from testbed.scenario.fault import Fault
from testbed.scenario.host_steps import MAX_BARRIER_FRAMES
from testbed.scenario.step import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testbed.errors import UsageError

__all__ = ["MAX_OWN_BYTES", "TRAILER_BYTES", "with_bytes"]

TRAILER_BYTES = 20  # struct tb_trailer of images/agent/protocol.h
MAX_OWN_BYTES = MAX_FRAME_BYTES - TRAILER_BYTES
MAX_STEP_BYTES = 4 << 20  # of all frames of one inject
HEADER_BYTES = 14
_OUR_ETHERTYPE = 0x88B5.to_bytes(2, "big")
_ETHERNET = 1  # LINKTYPE_ETHERNET
_SOURCES = ("frames", "pcap", "hex")


def with_bytes(data: object, directory: Path, tell: Callable[[Fault], UsageError]) -> object:
    """Return a scenario's plain data in which the frames of each inject are ``hex``.

    :param directory: where the path of a capture counts from.
    :param tell: makes the error for a fault.
    :raise UsageError: an expression, a capture or a frame is wrong.
    """
    if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
        return data  # what is wrong with that, the types will tell
    return {
        **data,
        "steps": [_step(step, f"$.steps[{i}]", directory, tell) for i, step in enumerate(data["steps"])],
    }


def _step(step: object, path: str, directory: Path, tell: Callable[[Fault], UsageError]) -> object:
    if not isinstance(step, dict):
        return step
    if step.get("step") == "repeat" and isinstance(step.get("steps"), list):
        inner = [_step(each, f"{path}.steps[{i}]", directory, tell) for i, each in enumerate(step["steps"])]
        return {**step, "steps": inner}
    given = [name for name in _SOURCES if step.get(name) is not None]
    if step.get("step") != "inject" or not given:
        return step
    if len(given) > 1:
        raise tell(
            Fault(f"{path}.{given[1]}", f"one of {', '.join(_SOURCES)}", f"{given[0]} too", "remove one")
        )
    (name,) = given
    try:
        frames = list(_READERS[name](step[name], directory))
    except ExpressionError as error:
        raise tell(Fault(f"{path}.{name}", error.expected, error.seen, _REMEDIES[name])) from None
    if fault := _fault_of(frames, f"{path}.{name}"):
        raise tell(fault)
    rest = {key: value for key, value in step.items() if key not in _SOURCES}
    return {**rest, "hex": [frame.hex() for frame in frames]}


def _fault_of(frames: list[bytes], path: str) -> Fault | None:
    if not frames or len(frames) > MAX_BARRIER_FRAMES or sum(map(len, frames)) > MAX_STEP_BYTES:
        expected = f"1 to {MAX_BARRIER_FRAMES} frames of {MAX_STEP_BYTES >> 20} MiB together"
        return Fault(path, expected, f"{len(frames)} of {sum(map(len, frames))} bytes", "split them")
    for number, frame in enumerate(frames, 1):
        if not HEADER_BYTES <= len(frame) <= MAX_OWN_BYTES:
            expected = f"frames of {HEADER_BYTES} to {MAX_OWN_BYTES} bytes"
            remedy = f"the MTU of 1500 less {TRAILER_BYTES} bytes for its number is the most"
            return Fault(path, expected, f"{len(frame)} in frame {number}", remedy)
        if frame[12:14] == _OUR_ETHERTYPE:
            remedy = "those are testbed's own numbered frames: write count and bytes"
            return Fault(path, "another EtherType than 0x88b5", f"that in frame {number}", remedy)
    return None


def _of_expressions(given: Any, _directory: Path) -> Iterator[bytes]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ExpressionError("a scapy expression or a list of them", str(given))
    for text in texts:
        yield from frames_of(text, MAX_BARRIER_FRAMES)


def _of_hex(given: Any, _directory: Path) -> Iterator[bytes]:
    texts = given if isinstance(given, (list, tuple)) else [given]
    for text in texts:
        digits = re.sub(r"\s", "", text) if isinstance(text, str) else ""
        if not re.fullmatch(r"([0-9a-fA-F]{2})+", digits):
            raise ExpressionError("frames as pairs of hexadecimal digits", repr(text))
        yield bytes.fromhex(digits)


def _of_pcap(given: Any, directory: Path) -> Iterator[bytes]:
    from scapy.error import Scapy_Exception  # noqa: PLC0415 - scapy takes 0.3 s to import
    from scapy.utils import RawPcapReader  # noqa: PLC0415

    if not isinstance(given, str):
        raise ExpressionError("the path of a capture", str(given))
    path = directory / given
    try:
        with path.open("rb") as file, RawPcapReader(file) as reader:
            packets = list(itertools.islice(reader, MAX_BARRIER_FRAMES + 1))
            kind = getattr(reader, "linktype", None)
    except OSError as error:
        raise ExpressionError("a capture that can be read", f"{path}: {error.strerror or error}") from None
    except (Scapy_Exception, EOFError, ValueError) as error:
        raise ExpressionError("a capture in pcap or pcapng", f"{path}: {error}") from None
    for number, (frame, about) in enumerate(packets, 1):
        link = getattr(about, "linktype", None) or kind
        if link != _ETHERNET:
            raise ExpressionError("a capture of Ethernet (link type 1)", f"link type {link} in {path}")
        if about.wirelen is not None and about.wirelen != len(frame):
            raise ExpressionError(
                "whole frames", f"{len(frame)} of {about.wirelen} bytes of frame {number} in {path}"
            )
        yield bytes(frame)


_READERS = {"frames": _of_expressions, "pcap": _of_pcap, "hex": _of_hex}
_REMEDIES = {
    "frames": 'write it like Ether()/IP()/UDP(dport=9)/Raw(b"x" * 20)',
    "pcap": "its path counts from the scenario's file",
    "hex": 'write them like ["02000000000202000000000188b6"]',
}
