"""What counts as another text, and what does not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from launchscope.adopt.printed import Printed, compare_printed

STEPS = 144


def losses(seed: int = 0, steps: int = STEPS) -> list[float]:
    """A loss that falls from 2.3, with the noise of batches."""
    draw = random.Random(seed)
    return [2.3 * 0.99**step + 0.05 * draw.random() for step in range(steps)]


def lines(form: str, *series: Sequence[object]) -> str:
    return "".join(form.format(*row) + "\n" for row in zip(*series))


def log(values: Sequence[float], form: str = "step {} loss {:.4f} lr {:g}") -> str:
    rates = [0.1 if step < 60 else 0.05 for step in range(len(values))]
    return lines(form, range(len(values)), values, rates)


def stale(values: Sequence[float]) -> list[float]:
    return [values[0], *values[:-1]]


def compared(original: str, patched: str, **options: Any) -> Printed:
    return compare_printed([original, original], patched, **options)


def test_the_same_text_agrees_in_all_its_lines() -> None:
    assert compared(log(losses()), log(losses())) == Printed(STEPS, 0)
    assert compared("", "") == Printed(0, 0)


@pytest.mark.parametrize("form", ["{:.4f}", "{:.2f}", "{}", "{:.3e}", "{:10.3f}%"])
def test_a_value_of_the_step_before_is_noticed(form: str) -> None:
    right, wrong = (lines(f"loss {form}", values) for values in (losses(), stale(losses())))
    assert compared(right, wrong).found


def test_a_value_of_the_step_behind_is_noticed() -> None:
    right, wrong = losses(), [*losses()[1:], 0.6]
    assert compared(log(right), log(wrong)).found


def test_a_slow_mean_of_the_step_before_is_noticed() -> None:
    total, means = 0.0, []
    for count, loss in enumerate(losses(), 1):
        total += loss
        means.append(total / count)
    assert compared(log(means), log(stale(means))).found


def test_a_smooth_value_that_is_printed_every_ten_steps_is_noticed_if_it_is_a_step_old() -> None:
    smooth = [2.3 * 0.99**step for step in range(STEPS)]
    right, wrong = (lines("loss {:.4f}", values[9::10]) for values in (smooth, stale(smooth)))
    assert compared(right, wrong).found


def test_where_all_bits_are_equal_one_wrong_line_is_a_difference() -> None:
    wrong = losses()
    wrong[70] *= 1.001
    assert compared(log(losses()), log(wrong)).found is None
    assert compared(log(losses()), log(wrong), exact=True).found


def test_rounding_is_none() -> None:
    draw = random.Random(1)
    rounded = [loss * (1 + draw.uniform(-2e-5, 2e-5)) for loss in losses()]
    for form in ("step {} loss {} lr {}", "step {} loss {:.4f} lr {}"):
        assert compared(log(losses(), form), log(rounded, form)).found is None


def test_an_original_that_rounds_in_another_way_says_what_runs_that_move_apart_may_print() -> None:
    def apart(seed: int) -> list[float]:
        draw = random.Random(seed)
        return [loss + 2e-5 * at * draw.uniform(-1, 1) for at, loss in enumerate(losses())]

    slow = [0.5 + loss / 100 for loss in apart(1)]
    original, other, patched = log(losses()), log(apart(1)), log(apart(2))
    assert compare_printed([original, original], patched, rounded=[other]).found is None
    assert compare_printed([original] * 2, log(slow), rounded=[other]).found
    assert compare_printed([original] * 2, log(stale(losses())), rounded=[other]).found


def test_one_sample_more_or_less_that_is_right_is_none() -> None:
    draw = random.Random(2)
    right = [min(32, 10 + step // 8 + draw.randint(-2, 2)) for step in range(STEPS)]
    flipped = [n - (step % 12 == 5) for step, n in enumerate(right)]
    form = "accuracy {:.2%} ({}/32)"
    one, other = (lines(form, [n / 32 for n in ns], ns) for ns in (right, flipped))
    assert compared(one, other).found is None
    assert compared(one, lines(form, [n / 32 for n in stale(right)], stale(right))).found
    total = 0
    all_right = [total := total + 32 - (step == 90) for step in range(STEPS)]
    one, other = (lines("correct {}", ns) for ns in (all_right, [n - 1 for n in all_right]))
    assert compared(one, other).found is None


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("shift", [1, -1])
def test_an_epoch_or_a_rate_that_changes_a_line_too_early_or_too_late_is_noticed(
    shift: int, exact: bool
) -> None:
    """One line of each epoch is wrong."""
    epochs = [step // 7 for step in range(STEPS)]
    rates = [0.1 * 0.5 ** (step // 40) for step in range(STEPS)]
    for form, values in (("[{}] loss {:.4f}", epochs), ("lr {:g} loss {:.4f}", rates)):
        other = values[1:] + values[-1:] if shift > 0 else values[:1] + values[:-1]
        original, patched = (lines(form, each, losses()) for each in (values, other))
        found = compared(original, patched, exact=exact).found
        assert found is not None
        assert found.original != found.patched


def test_a_value_of_few_digits_that_is_rounded_the_other_way_once_is_none() -> None:
    values = [f"{0.9 - step * 1e-3:.2f}" for step in range(STEPS)]
    other = list(values)
    at = next(at for at in range(1, STEPS) if values[at] != values[at - 1])
    other[at] = values[at - 1]
    assert compared(lines("loss {}", values), lines("loss {}", other)).found is None


@pytest.mark.parametrize(
    "form",
    [
        "loss {:.3f} time {:.2f} s", "{:.3f} {:.3f}ms", "loss {:.3f} ({:.1f} tok/s)",
        "loss {:.3f} | elapsed: {:.0f}", "loss {:.3f}, max mem: {:.0f}", "{:.3f} | ms/batch {:.1f}",
        "loss {:.3f} eta 00:{:02.0f}", "loss {:.3f} SPS: {:.0f}",
    ],
)  # fmt: skip
def test_times_rates_and_memory_are_not_compared(form: str) -> None:
    slow, slower, fast = (
        lines(form, losses(), [step * s for step in range(60)]) for s in (1.0, 1.03, 0.5)
    )
    assert compare_printed([slow, slower], fast).found is None
    wrong = lines(form, stale(losses()), [step * 0.5 for step in range(60)])
    assert compare_printed([slow, slower], wrong).found


@pytest.mark.parametrize(
    "form", ["temperature {:.4f}", "time horizon {:.3f}", "RMSE {:.3f} m", "{:.4f} nats/step"]
)
def test_what_is_named_like_a_time_but_the_same_in_all_runs_is_compared(form: str) -> None:
    text, other = (lines(form, values) for values in (losses(), stale(losses())))
    assert compare_printed([text, text], other, rounded=[text]).found


@pytest.mark.parametrize("every", [32, 70])
def test_a_counter_or_a_slow_number_that_is_off_by_a_step_is_noticed_in_few_lines(
    every: int,
) -> None:
    steps = range(0, STEPS, every)
    for original, patched in (
        (lines("{}", steps), lines("{}", [step + 1 for step in steps])),
        (
            lines("tau {:.4f}", [0.99**step for step in steps]),
            lines("tau {:.4f}", [0.99 ** (step + 1) for step in steps]),
        ),
    ):
        assert compare_printed([original, original], patched, rounded=[original]).found


def test_numbers_that_differ_from_run_to_run_are_not_compared() -> None:
    runs = [lines("{:.4f} {:.3f}", losses(), losses(seed)) for seed in (1, 2, 3)]
    assert compare_printed(runs[:2], runs[2]).found is None
    wrong = lines("{:.4f} {:.3f}", stale(losses()), losses(4))
    assert compare_printed(runs[:2], wrong).found


def test_a_line_that_lacks_a_part_is_noticed() -> None:
    found = compared(log(losses()), log(losses(), "step {} loss {:.4f}")).found
    assert found is not None
    assert (found.original, found.patched) == ("step 0 loss 2.3422 lr 0.1", "step 0 loss 2.3422")


def test_a_line_that_is_missing_or_new_is_noticed() -> None:
    right = log(losses())
    assert compared("Epoch 1\n" + right, right).found
    assert compared(right, "Epoch 1\n" + right).found
    halves = right[: len(right) // 2], right[len(right) // 2 :]
    assert compared(right + "saved\n", right, stopped=False).found
    assert compared("saved\n".join(halves), right).found
    assert compared(right, "").found


def test_lines_in_another_order_are_noticed() -> None:
    both = lines("epoch {}\nloss {:.3f}", range(10), losses())
    turned = lines("loss {1:.3f}\nepoch {0}", range(10), losses())
    assert compared(both, turned).found


@pytest.mark.parametrize("count", [lambda n: n + 1, lambda n: max(0, n - 1), lambda n: 0])
def test_a_counter_that_is_off_is_noticed(count: Callable[[int], int]) -> None:
    steps = range(STEPS)
    right = lines("epoch {} step {}", [n // 16 for n in steps], [n % 16 for n in steps])
    wrong = lines("epoch {} step {}", [n // 16 for n in steps], [count(n) % 16 for n in steps])
    assert compared(right, wrong).found


def test_a_counter_that_is_off_once_is_noticed() -> None:
    wrong = [*range(70), 69, *range(71, STEPS)]
    assert compared(lines("{}", range(STEPS)), lines("{}", wrong)).found


@pytest.mark.parametrize(
    "form",
    ["time step 5 reward {:.3f}", "memory loss {:.4f}", "speed mse {:.4f}", "err {:.3f} m",
     "train time_step loss {:.4f}"],
)  # fmt: skip
def test_a_result_beside_a_word_for_time_or_memory_is_compared(form: str) -> None:
    right = lines(form, losses())
    assert compared(right, lines(form, stale(losses()))).found


def test_another_rate_is_noticed_and_one_that_changes_a_line_too_late() -> None:
    halved = [0.1] * 55 + [0.05] * 89
    right = lines("lr {}", halved)
    assert compared(right, lines("lr {}", stale(halved))).found
    assert compared(right, lines("lr {}", [0.1] * STEPS)).found
    assert compared(lines("n {}", [8] * 9), lines("n {}", [7] * 9)).found


def test_the_end_may_be_cut_where_runs_are_stopped() -> None:
    right = log(losses())
    shorter = right[: right.rindex("step")]
    for one, other in (right, shorter), (shorter, right):
        assert compared(one, other).found is None
        assert compared(one, other, stopped=False).found
    assert compared(right, log(losses()[:100])).found


def test_what_is_overwritten_as_often_as_time_allows_is_not_compared() -> None:
    def bar(every: int) -> str:
        return "".join(f"\r{n}%|{'#' * (n // 5)}| {n}/100" for n in range(0, 100, every)) + "\n"

    assert compare_printed([bar(3), bar(4)], bar(7)).found is None
    assert compare_printed([bar(3), bar(3)], bar(2)).found is None
    one, other = ("".join(f"\rloss {n:.4f}" for n in ns) for ns in (losses(), stale(losses())))
    assert compared(one, other).found


def test_words_that_differ_from_run_to_run_are_left_out() -> None:
    head = "{} Nov 2026\nrun {} at 0x7f0{}\n<Model object at 0x{}>\n"
    runs = [head.format(day, name, n, n) + log(losses()) for day, name, n in
            (("Fri", "calm-fox", 1), ("Sat", "old-dog", 2), ("Sun", "red-cat", 3))]  # fmt: skip
    assert compare_printed(runs[:2], runs[2]) == Printed(STEPS + 1, 2)
    assert compare_printed(["a\n", "b\n"], "c\n") == Printed(0, 1)


def test_lines_of_threads_are_compared_each_with_its_like() -> None:
    values = losses()
    one, other = ("".join(f"a {v:.3f}\nb {v:.2f}\n" for v in values),
                  "".join(f"b {v:.2f}\na {v:.3f}\n" for v in values))  # fmt: skip
    assert compare_printed([one, other], one).found is None
    assert compare_printed([one, other], lines("a {:.3f}\nb {:.2f}", stale(values), values)).found
    assert compare_printed([one, other], lines("a {:.3f}", values)).found


def test_nan_is_equal_to_nan() -> None:
    nan = float("nan")
    right = [*losses()[:20], *[nan] * 50]
    assert compared(log(right), log(right)).found is None
    assert compared(log(right), log(losses()[:70])).found
    assert compared(log(losses()), log([nan] * STEPS)).found


def test_two_lines_of_epochs_are_compared_by_their_numbers() -> None:
    form = "Epoch {}: loss {:.3f}, accuracy {}/500"
    right = lines(form, [1, 2], [1.234, 0.987], [300, 401])
    assert compared(right, lines(form, [1, 2], [1.235, 0.987], [301, 400])).found is None
    assert compared(right, lines(form, [0, 1], [1.234, 0.987], [300, 401])).found
    assert compared(right, lines(form, [1, 2], [1.234, 1.234], [300, 401])).found
    slightly = lines(form, [1, 2], [1.235, 0.987], [300, 401])
    assert compared(right, slightly, exact=True).found


def test_a_list_that_is_printed_once_is_compared_as_a_series() -> None:
    draw = random.Random(5)
    apart = [loss * (1 + draw.uniform(0, 2e-5) + 0.03 * (at > 100)) for at, loss in
             enumerate(losses())]  # fmt: skip
    rows = ["epoch,correct,loss\n1,99,0.5\n", f"losses {losses()}\n"]
    assert compared("".join(rows), f"{rows[0]}losses {apart}\n").found is None
    assert compared("".join(rows), f"{rows[0]}losses {stale(losses())}\n").found


def test_a_loss_that_is_detached_prints_the_same() -> None:
    one = lines("tensor({:.4f}, device='cuda:0', grad_fn=<NllLossBackward0>)", losses())
    other = lines("tensor({:.4f}, device='cuda:0')", losses())
    assert compared(one, other).found is None


def test_a_comparison_that_rounding_decides_may_print_a_line_more() -> None:
    texts = [
        "".join(f"loss {v:.4f}\n" + "best\n" * (n % 7 == 0 or n == more) for n, v in
                enumerate(losses()))
        for more in (0, 50)
    ]  # fmt: skip
    assert compared(*texts).found is None
    assert compared(*texts, exact=True).found


def test_a_long_text_takes_seconds() -> None:
    text = "".join(f"step {n} loss {n / 7} a{n % 9} {'x' * 60}\n" for n in range(10_000))
    other = text.replace("loss 1", "loss 2")
    assert compared(text, other).lines == 10_000
