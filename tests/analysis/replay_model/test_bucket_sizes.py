from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launchscope.analysis.replay_model.bucket_sizes import PARTS, choose_buckets


def brute_force(
    counts: list[int],
    eager: list[float],
    replay: list[float],
    max_graphs: int,
    memory: list[int],
    limit: int,
) -> float:
    """The least time over every set of buckets."""
    n = len(counts)
    padded = [max(replay[: i + 1]) for i in range(n)]
    best = sum(c * e for c, e in zip(counts, eager))
    for graphs in range(1, max_graphs + 1):
        for edges in combinations(range(n), min(graphs, n)):
            if sum(memory[edge] for edge in edges) > limit:
                continue
            total = 0.0
            for i in range(n):
                served = [edge for edge in edges if edge >= i]
                cost = min(eager[i], padded[served[0]]) if served else eager[i]
                total += counts[i] * cost
            best = min(best, total)
    return best


@st.composite
def problems(
    draw: st.DrawFn,
) -> tuple[list[int], list[float], list[float], int, list[int], int]:
    n = draw(st.integers(1, 6))
    time = st.floats(0.1, 50, allow_nan=False)
    return (
        draw(st.lists(st.integers(1, 40), min_size=n, max_size=n)),
        draw(st.lists(time, min_size=n, max_size=n)),
        draw(st.lists(time, min_size=n, max_size=n)),
        draw(st.integers(1, 4)),
        draw(st.lists(st.integers(1, PARTS), min_size=n, max_size=n)),
        draw(st.integers(1, 3)),
    )


@settings(max_examples=200, deadline=None)
@given(problems())
def test_no_set_of_buckets_is_faster(
    problem: tuple[list[int], list[float], list[float], int, list[int], int],
) -> None:
    counts, eager, replay, max_graphs, memory, _ = problem
    free = choose_buckets(counts, eager, replay, max_graphs)
    unlimited = brute_force(counts, eager, replay, max_graphs, [0] * len(counts), 0)
    assert free.total == pytest.approx(unlimited)
    # With a limit of as many parts as there are, whole amounts are not rounded.
    held = choose_buckets(
        counts, eager, replay, max_graphs, [float(m) for m in memory], float(PARTS)
    )
    assert held.total == pytest.approx(
        brute_force(counts, eager, replay, max_graphs, memory, PARTS)
    )
    assert sum(memory[edge] for edge in held.edges) <= PARTS
    assert len(held.edges) <= max_graphs


def test_one_graph_is_padded_to_the_longest() -> None:
    chosen = choose_buckets([3, 4, 5], [10, 10, 10], [1, 2, 3], 1)
    assert chosen.edges == (2,)
    assert chosen.total == pytest.approx(36)
    assert all(chosen.graphed)


def test_a_graph_for_every_size_wastes_nothing() -> None:
    chosen = choose_buckets([3, 4, 5], [10, 10, 10], [1, 2, 3], 8)
    assert chosen.edges == (0, 1, 2)
    assert chosen.total == pytest.approx(3 + 8 + 15)


def test_a_rare_long_size_that_a_replay_does_not_help_stays_eager() -> None:
    chosen = choose_buckets([50, 1], [10, 40], [1, 41], 2)
    assert chosen.edges == (0,)
    assert chosen.graphed == (True, False)
    assert chosen.total == pytest.approx(50 + 40)


def test_padding_that_is_slower_than_eager_is_not_done() -> None:
    chosen = choose_buckets([1, 100], [2, 10], [1, 5], 1)
    assert chosen.edges == (1,)
    assert chosen.graphed == (False, True)


def test_nothing_pays_means_no_bucket() -> None:
    chosen = choose_buckets([5, 5], [1, 1], [2, 3], 4)
    assert chosen.edges == ()
    assert chosen.graphed == (False, False)


def test_the_memory_limit_is_kept_by_taking_fewer_graphs() -> None:
    args = ([10, 10, 10], [10.0] * 3, [1.0, 2.0, 3.0])
    assert choose_buckets(*args, 3, [10, 20, 30], 64).edges == (0, 1, 2)
    assert choose_buckets(*args, 3, [10, 20, 30], 45).edges == (0, 2)
    assert choose_buckets(*args, 3, [10, 20, 30], 29).edges == (1,)
    assert choose_buckets(*args, 3, [10, 20, 30], 5).edges == ()


def test_a_longer_step_that_was_measured_faster_is_noise() -> None:
    chosen = choose_buckets([1, 1], [10, 10], [3.0, 2.9], 1)
    assert chosen.total == pytest.approx(6)
