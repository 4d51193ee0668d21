"""Splats in a kernel log: what the kernel says when it finds itself in a state it must not be in.

Patterns are anchored to the start of the message, behind the time stamp, because harmless lines contain the
same words ("Kernel command line: oops=panic", "rcu: INFO: hung_task_timeout", "BUG_ON enabled").
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import numpy as np

from testbed.trace.events import EVENT, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

__all__ = ["Splat", "find_splats", "with_splat_rows"]

#: "[    1.234567] ", also with the caller's id that CONFIG_PRINTK_CALLER adds: "[    1.234567][  T12] ".
_STAMP = re.compile(r"^(?:<\d+>)?\[\s*(?P<seconds>\d+)\.(?P<micros>\d{6})\](?:\[\s*[TC]\d+\])?\s?")

#: What kind of splat it is, and how its headline begins; the first that fits counts.
_HEADLINES = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        ("WARN", r"WARNING: (?:CPU: \d+ PID: \d+ at |.+:\d+ at )"),
        ("lockdep", r"WARNING: (?:suspicious RCU usage|bad unlock balance|held lock freed|lock held when )"),
        ("lockdep", r"WARNING: (?:possible |inconsistent lock state|\S+-safe -> |Nested lock )"),
        ("lockdep", r"\[ BUG: "),
        ("sanitizer", r"BUG: K(?:A|C|M)SAN: |UBSAN: "),
        ("page", r"BUG: Bad page |page_pool_release_retry\(\) stalled pool"),
        ("scheduling", r"BUG: scheduling while atomic|BUG: sleeping function called"),
        ("BUG", r"BUG: |kernel BUG at "),
        ("oops", r"(?:Oops|general protection fault|Internal error)\b.*[:#]"),
        ("oops", r"(?:double fault|divide error|int3|stack segment|invalid opcode): "),
        ("panic", r"Kernel panic - not syncing"),
        ("RCU stall", r"(?:rcu: )?INFO: \S+ (?:self-)?detected (?:expedited )?stall"),
        ("hung task", r"INFO: task \S+ blocked for more than \d+ seconds"),
        ("lockup", r"watchdog: BUG: \w+ lockup - |(?:NMI )?watchdog: .*hard LOCKUP"),
        ("refcount", r"refcount_t: "),
        ("list", r"(?:list_add|list_del) corruption"),
        ("NAPI", r"(?:.*: )?NAPI poll function .* returned |.*: Budget exhausted after napi rescheduled"),
        ("XDP", r"Missing xdp_do_flush\(\) invocation after NAPI by "),
        ("netpoll", r".* exceeded budget in poll|netpoll_send_skb_on_dev\(\): .* enabled interrupts in poll"),
        ("Tx timeout", r"(?:.*: )?NETDEV WATCHDOG: |.*: Detected Tx Unit Hang"),
        ("interrupt", r"irq \d+: nobody cared"),
        ("DMA", r"DMA-API: .*(?:device driver|cacheline)"),
        ("device", r"unregister_netdevice: waiting for "),
    )
)
_AT = re.compile(r" at (?:\S+ )*?(?P<function>[A-Za-z_][\w.]*\+0x[0-9a-f]+)")
_IN = re.compile(r" in (?P<function>[A-Za-z_][\w.]*(?:\+0x[0-9a-f]+)?)")
_RIP = re.compile(r"RIP: \d+:(?P<function>[A-Za-z_][\w.]*\+0x[0-9a-f]+)")
_CUT = re.compile(r"------------\[ cut here \]------------|={20,}")
_END = re.compile(r"---\[ end (?:trace|Kernel panic)")


@dataclasses.dataclass(frozen=True)
class Splat:
    """One splat: the headline's line number (from 0), its time, what it is and where it says it happened.

    ``message`` is what a WARN with words of its own says in the line before its headline; else empty.
    """

    line: int
    time_ns: int
    what: str
    headline: str
    function: str
    message: str = ""

    def __str__(self) -> str:
        place = f" in {self.function}" if self.function and self.function not in self.headline else ""
        words = f": {self.message}" if self.message else ""
        return f"{self.headline}{place}{words}"


def find_splats(lines: Sequence[str]) -> list[Splat]:
    """Return the splats of a log, in order; the headlines between one and its "end trace" are part of it.

    :param lines: as the serial console gave them, each ``[    1.234567] text``; a missing stamp is no error.
    """
    splats = []
    inside_until = -1
    for number, what, text, time_ns in _headlines(lines):
        if number <= inside_until:
            continue
        inside_until = _last_line(lines, number)
        function = _function(lines[number : max(inside_until, number + 12) + 1])
        worded = number > 1 and "[ cut here ]" in lines[number - 2]
        message = _text(lines[number - 1]) if worded else ""
        splats.append(Splat(number, time_ns, what, text, function, message))
    return splats


def with_splat_rows(events: npt.NDArray[np.void], lines: Sequence[str]) -> npt.NDArray[np.void]:
    """Return the table with a LOG row for each splat of the log behind its last row."""
    splats = find_splats(lines)
    rows = np.zeros(len(splats), dtype=EVENT)
    rows["kind"] = Kind.LOG
    rows["subject"] = [splat.line for splat in splats]
    rows["time_ns"] = [splat.time_ns for splat in splats]
    return np.concatenate([events, rows])


def _headlines(lines: Sequence[str]) -> Iterator[tuple[int, str, str, int]]:
    for number, line in enumerate(lines):
        stamp = _STAMP.match(line)
        text = _text(line)
        time_ns = int(stamp["seconds"]) * 1_000_000_000 + int(stamp["micros"]) * 1000 if stamp else 0
        for what, pattern in _HEADLINES:
            if pattern.match(text):
                yield number, what, text, time_ns
                break


def _text(line: str) -> str:
    """Return a line without its time stamp."""
    stamp = _STAMP.match(line)
    return (line[stamp.end() :] if stamp else line).strip()


def _last_line(lines: Sequence[str], headline: int) -> int:
    """Return the line of a splat's own end mark; the headline's when none stands before the next splat."""
    for number in range(headline + 1, min(headline + 200, len(lines))):
        if _END.search(lines[number]):
            return number
        if _CUT.search(lines[number]):
            return headline
    return headline


def _function(lines: Sequence[str]) -> str:
    for pattern, where in ((_AT, lines[:1]), (_IN, lines[:1]), (_RIP, lines)):
        for line in where:
            found = pattern.search(line)
            if found:
                return found["function"]
    return ""
