"""Fuzzing on real guests: coverage comes from the driver, findings repeat, inputs do not disturb each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from testbed.fuzzing.bases import BASES
from testbed.fuzzing.findings import all_findings
from testbed.fuzzing.input_model import Input, encode
from testbed.fuzzing.records import load_campaigns
from testbed.fuzzing.session import Seen, Session, Status
from testbed.fuzzing.worker import request_for
from testbed.scenario.steps import Inject, RxDrain, Sleep, Tx, TxKick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from victims import Cache

    from testbed.scenario.steps import AnyStep


def bytes_of(*steps: AnyStep) -> bytes:
    return encode(Input(BASES[0], steps))


RECEIVE = bytes_of(Inject(count=1), Sleep(us=1000), RxDrain())
SEND = bytes_of(Tx(count=1), TxKick())
OVERFLOW = bytes_of(Inject(count=100), Sleep(us=1000))


@pytest.fixture(scope="module")
def told() -> list[Status | Seen]:
    return []


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, told: list[Status | Seen]) -> Iterator[Session]:
    findings: Path = tmp_path_factory.mktemp("findings")
    session = Session(request_for("igb", ""), str(findings), told.append)
    yield session
    session.close()


@pytest.fixture(scope="module")
def reached(session: Session) -> Callable[[bytes], set[int]]:
    def run(data: bytes) -> set[int]:
        session.blocks.values[:] = 0
        session.one(data)
        return set(np.flatnonzero(session.blocks.values).tolist())

    return run


def test_inputs_reach_code_of_their_own_and_the_same_again(
    session: Session, reached: Callable[[bytes], set[int]], told: list[Status | Seen]
) -> None:
    reached(SEND)  # the first one after a restore finds timers of the guest's own
    receive, send, again = reached(RECEIVE), reached(SEND), reached(RECEIVE)
    assert len(receive) > 100
    assert receive - send
    assert len(receive ^ again) < 20 < len(receive ^ send)
    assert session.status.executions == 4
    assert session.status.refused == 0
    assert not [word for word in told if isinstance(word, Seen)]


def test_a_ring_that_overflows_is_a_finding_that_repeats(session: Session, told: list[Status | Seen]) -> None:
    session.one(OVERFLOW)
    found = {word.finding.rule: word.finding for word in told if isinstance(word, Seen) and word.finding}
    assert list(found) == ["ring-full-exit"]
    assert found["ring-full-exit"].repeated == 3
    assert found["ring-full-exit"].inputs == 1
    assert found["ring-full-exit"].data == OVERFLOW.hex()
    assert all_findings(session.findings) == [found["ring-full-exit"]]


def test_a_campaign_leaves_how_it_grew(cache: Cache, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    done = cache.call("fuzz", "--nic", "igb", "--time", "5s", "--seed", "1", "--corpus", corpus)
    assert done.status in {0, 1}, done.err
    (campaign,) = load_campaigns(corpus)
    last = campaign.growth[-1]
    assert (last.executions, last.blocks, last.seconds) == (
        campaign.executions, campaign.blocks, campaign.seconds
    )  # fmt: skip
    assert f"{campaign.executions} inputs run in {campaign.seconds:.0f} s" in done.out
    assert f"{campaign.blocks} basic blocks" in done.out
    page = cache.call("report", corpus)
    assert page.out.strip() == str(corpus / "report.html")
