"""From seconds to timings, and from timings to what was missed."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from testbed.bench.records import BOOT, FIRST_RUN, LIBRARY, PLAIN, RESTORE, RUN, SAVE, TARGETS_S, Timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.bench.records import ModelRecord, Repetition

__all__ = ["missed_targets", "summarise"]

_WHAT = {
    PLAIN: "QEMU with the same kernel and busybox, from its start to the shell's prompt; no icount, no NIC",
    BOOT: "QEMU's start to a ready agent, virtual time",
    SAVE: "saving the ready guest",
    RESTORE: "QEMU's start to a loaded guest",
    FIRST_RUN: "the command `{}`, without a snapshot",
    RUN: "the command `{}`, with a snapshot",
    LIBRARY: "every scenario on igb and e1000e, two guests at once, snapshots included",
}


def summarise(seconds: dict[str, list[float]], words: Sequence[str]) -> list[Timing]:
    """Return a timing for each name, in the order of the names; those of the plain boot must be among them.

    :param words: the command that was timed as a whole.
    """
    plain = statistics.median(seconds[PLAIN])
    return [
        Timing(
            name=name,
            what=_WHAT[name].format(" ".join(("testbed", *words))),
            seconds=[round(each, 3) for each in samples],
            median_s=round(statistics.median(samples), 3),
            ratio=round(statistics.median(samples) / plain, 3),
            target_s=TARGETS_S.get(name),
        )
        for name, samples in seconds.items()
    ]


def missed_targets(
    timings: Sequence[Timing], repetitions: Sequence[Repetition], model: ModelRecord
) -> list[str]:
    """Return a sentence for each target that was not met."""
    slow = [
        f"{each.name} took {each.median_s:g} s, target {each.target_s:g} s"
        for each in timings
        if not each.met
    ]
    different = [_missed(each) for each in repetitions if not each.met]
    return [*slow, *different, *_missed_by_model(model)]


def _missed_by_model(model: ModelRecord) -> list[str]:
    missed = []
    if model.median_us > model.target_us:
        missed.append(
            f"reading a register of {model.nic} took {model.median_us:g} us, target {model.target_us:g} us"
        )
    if model.idle_cpu_percent > model.target_percent:
        missed.append(
            f"{model.nic}'s model took {model.idle_cpu_percent:g} % of a core when idle, "
            f"target {model.target_percent:g} %"
        )
    return missed


def _missed(repetition: Repetition) -> str:
    if repetition.broken:
        return f"{repetition.what}: {repetition.broken} of {repetition.runs} runs broken: {repetition.error}"
    return f"{repetition.what}: {repetition.digests} different digests in {repetition.runs} runs, expected 1"
