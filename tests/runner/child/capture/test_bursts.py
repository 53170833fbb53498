"""How long replays are said to keep the host, on a driver whose queue is full after one of them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from launchscope.runner.child.capture import capture as captures
from launchscope.runner.child.capture.capture import Bursts, LiveReplay
from launchscope.runner.child.capture.ranks import CaptureRanks

REPLAY_S = 0.01


class Card:
    """A GPU on which the call of a replay waits for the replay before it."""

    free_at = 0.0

    def synchronize(self) -> None:
        time.sleep(max(0.0, self.free_at - time.monotonic()))

    def replay(self) -> None:
        self.synchronize()
        self.free_at = time.monotonic() + REPLAY_S


class Event:
    def __init__(self, card: Card):
        self.card, self.at = card, 0.0

    def record(self) -> None:
        self.at = max(self.card.free_at, time.monotonic())

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1e3


def test_a_replay_that_waits_for_the_one_before_it_does_not_keep_the_host_for_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card: Any = Card()
    state: Any = SimpleNamespace(apply=list, revert=list, save=list, restore=list)
    torch = SimpleNamespace(cuda=card, distributed=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setattr(captures, "timing_events", lambda _, n: [Event(card) for _ in range(n)])
    live = LiveReplay(card, state, state, [])
    bursts = Bursts(torch, live, 10, CaptureRanks(torch))
    while not bursts.done:
        bursts.open()
        bursts.close()
        bursts.after_step()
    assert min(ms for burst in bursts.replay for ms in burst) > 0.9e3 * REPLAY_S
    assert bursts.host_us[0] < 0.5e6 * REPLAY_S
