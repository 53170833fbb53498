"""The period of an event sequence is found in its history (written as in `histories`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchscope.runner.child.events.step_pattern import BACKWARD, FORWARD, OPTIMIZER
from launchscope.runner.child.steps.search import StepSearch, repeating_period
from tests.runner.histories import PLAIN, searched, token, trained, words

# ------------------------------------------------------------------------------- finding


def test_a_period_counts_after_three_repeats() -> None:
    once = [token(word) for word in PLAIN.split()]
    assert repeating_period(once * 2) is None
    assert repeating_period(once * 3) == 3


def test_a_period_has_to_contain_what_is_required() -> None:
    history = [token(word) for word in ("F.net B " * 6).split()]
    assert repeating_period(history) == 2
    assert repeating_period(history, frozenset({"adam"})) is None


@given(
    st.lists(st.sampled_from(["F.a", "F.b", "B", "O.x", "O.y"]), min_size=1, max_size=12),
    st.lists(st.sampled_from(["F.a", "B", "O.x"]), max_size=20),
    st.integers(3, 6),
)
def test_a_period_is_found_after_any_other_events(
    cycle: list[str], noise: list[str], repeats: int
) -> None:
    tokens = [token(word) for word in [*noise, *cycle * repeats]]
    period = repeating_period(tokens)
    assert period is not None
    assert period <= len(cycle)
    assert tokens[-period:] == tokens[-2 * period : -period]


@pytest.mark.parametrize(
    ("history", "step"),
    [
        (f"{PLAIN} " * 3, PLAIN),
        ("F.net B " * 3 + "O.adam " + "F.net B F.net B F.net B O.adam " * 2, None),
        (("F.net B " * 40 + "O.adam ") * 2, "F.net B " * 39 + "F.net B O.adam"),
        ("F.D B O.d F.D B O.g " * 3, "F.D B O.d F.D B O.g"),
        (
            "F.D B F.G F.D B O.d F.D B O.g " * 3,
            "F.D B F.G F.D B O.d F.D B O.g",
        ),
        (
            ("F.D F.G F.D B O.d " * 5 + "F.G F.D B O.g ") * 3,
            "F.D F.G F.D B O.d " * 5 + "F.G F.D B O.g",
        ),
        ("F.net F.net B O.adam " * 3, "F.net F.net B O.adam"),
        ("f.teacher F.net F.kl~ B O.adam " * 4, "f.teacher F.net F.kl~ B O.adam"),
        ("F.net F.mse~ B O.adam F.accuracy~ " * 3, "F.net F.mse~ B O.adam"),
        (
            "F.enc F.dec F.dec F.dec B O.e O.d " + "F.enc F.dec F.dec B O.e O.d " * 3,
            "F.enc F.dec F.dec B O.e O.d",
        ),
        ("F.other " + "F.net F.mse~ B O.adam F.accuracy~ " * 3, "F.net F.mse~ B O.adam"),
        ("F.q f.target F.q B O.adam " * 3, "F.q F.q B O.adam"),
        ("O.lbfgs " * 3, "O.lbfgs"),
        ("F.net B O.adam O.embedding " * 3, "F.net B O.adam O.embedding"),
        ("B O.adam " * 3, "B O.adam"),
    ],
)
def test_the_step_of_a_training_script(history: str, step: str | None) -> None:
    pattern = searched(history).training_pattern(optimizer_expected=True)
    if step is None and pattern is None:
        return
    assert pattern is not None
    assert words(pattern) == (step or "F.net B F.net B F.net B O.adam").strip()
    assert pattern.closing == "optimizer"
    kinds = [event.kind for event in pattern.tokens]
    assert (pattern.forwards, pattern.backwards, pattern.optimizers) == (
        kinds.count(FORWARD),
        kinds.count(BACKWARD),
        kinds.count(OPTIMIZER),
    )


def test_accumulation_is_no_step_before_the_optimizer_has_stepped() -> None:
    history = "F.net B " * 30
    assert searched(history).training_pattern(optimizer_expected=True) is None
    assert trained(history, optimizer_expected=False).closing == "next"


def test_an_optimizer_that_steps_rarely_is_part_of_the_step_that_contains_it() -> None:
    """Five critic steps look periodic until the generator has stepped."""
    critic = "F.D B O.d "
    before = searched(critic * 5).training_pattern(optimizer_expected=True)
    assert before is not None
    assert words(before) == critic.strip()
    search = searched(critic * 5 + "F.D B O.g ")
    assert search.training_pattern(optimizer_expected=True) is None


def test_a_hand_written_optimizer_ends_with_the_next_step() -> None:
    pattern = trained("F.net B " * 4, optimizer_expected=False)
    assert words(pattern) == "F.net B"
    assert (pattern.closing, pattern.first.key) == ("next", "net")


@pytest.mark.parametrize(
    "history",
    [
        f"f.sanity f.sanity {PLAIN} {PLAIN} {PLAIN}",
        f"{PLAIN} f.net f.net f.net {PLAIN} {PLAIN}",
        f"{PLAIN} {PLAIN} {PLAIN} f.net f.net",
        "f.net " * 40 + f"{PLAIN} " * 3,
        f"F.net B {PLAIN} {PLAIN} {PLAIN}",
        f"F.net B F.net B F.net B {PLAIN} {PLAIN} {PLAIN}",
        f"f.net {PLAIN} f.net {PLAIN} f.net {PLAIN}",
    ],
)
def test_rare_and_unrelated_events_do_not_change_the_step(history: str) -> None:
    pattern = trained(history)
    assert words(pattern) == PLAIN
    assert (pattern.first.key, pattern.first.trains) == ("net", True)


# ----------------------------------------------------------------------------- beginnings


@pytest.mark.parametrize(
    ("history", "step"),
    [
        ("Z N B O.adam ", "Z B O.adam"),
        ("N Z B O.adam ", "< B O.adam"),
        ("N B O.adam Z ", "Z B O.adam"),
        ("N B O.adam ", "< B O.adam"),
        ("Z F.mse~ B O.adam ", "Z B O.adam"),
        ("N F.mse~ B O.adam ", "< B O.adam"),
        ("Z N F.net N B O.adam ", "Z F.net B O.adam"),
        ("Z F.net N B O.adam ", "F.net B O.adam"),
        ("N F.net B O.adam ", "F.net B O.adam"),
        ("Z N B O.d Z N B O.g ", "Z B O.d B O.g"),
        ("O.lbfgs ", "O.lbfgs"),
        ("Z N O.adam ", "Z O.adam"),
        ("N O.adam ", "< O.adam"),
        ("f.teacher Z N B O.adam ", "f.teacher B O.adam"),
    ],
)
def test_a_step_begins_where_its_work_does(history: str, step: str) -> None:
    pattern = trained(history * 4).visible_through(frozenset({"net", "teacher"}))
    assert pattern is not None
    assert words(pattern) == step


# ----------------------------------------------------------------------------- inference


@pytest.mark.parametrize(
    ("history", "step"),
    [
        ("f.net " * 3, "f.net"),
        ("F.net " * 3, "F.net"),
        ("f.encoder f.decoder " * 3, "f.encoder f.decoder"),
        ("f.norm~ f.net f.softmax~ " * 3, "f.net"),
        ("f.encoder f.pool~ f.head f.softmax~ " * 3, "f.encoder f.pool~ f.head"),
        ("f.relu~ " * 3, "f.relu~"),
    ],
)
def test_the_step_of_an_inference_script(history: str, step: str) -> None:
    search = searched(history)
    assert not search.trains
    pattern = search.forward_pattern()
    assert pattern is not None
    assert words(pattern) == step
    assert pattern.closing == "forward"
    assert search.steps_seen(pattern) == 3


def test_a_step_of_modules_without_hooks_cannot_be_followed() -> None:
    inference = searched("f.relu~ " * 3).forward_pattern()
    assert inference is not None
    assert inference.visible_through(frozenset()) is None
    by_hand = trained("F.net B " * 3, optimizer_expected=False)
    assert by_hand.visible_through(frozenset()) is None
    training = trained("F.mse~ B O.adam " * 3).visible_through(frozenset())
    assert training is not None
    assert words(training) == "< B O.adam"


# ------------------------------------------------------------------------------- forced


def test_step_from_optimizer_takes_everything_since_the_last_step() -> None:
    search = searched("F.net B F.net B O.adam F.net B O.adam")
    pattern = search.single_optimizer_pattern()
    assert pattern is not None
    assert words(pattern) == PLAIN
    assert searched(PLAIN).single_optimizer_pattern() is None


def test_step_from_forward_takes_the_module_seen_most() -> None:
    search = searched("F.net F.mse~ F.aux F.net F.mse~ F.net")
    pattern = search.single_forward_pattern()
    assert pattern is not None
    assert words(pattern) == "F.net"
    assert search.steps_seen(pattern) == 3
    assert StepSearch().single_forward_pattern() is None
