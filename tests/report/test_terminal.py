"""The terminal report: its order, its width, and what it never shows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from launchscope.model import (
    Facts,
    KernelRow,
    Metric,
    Profile,
    ScopeReplay,
    SourceLine,
    WorkComparison,
)
from launchscope.report import RenderOptions, render
from launchscope.rules import advise
from tests.rules.profiles import PREDICTED, blocked, predicted, profile, share


def text(of: object = None, *, width: int = 80, color: bool = False, top: int | None = None) -> str:
    options = RenderOptions(width, color, top=top)
    shown = render(advise(profile()) if of is None else of, "terminal", options)
    assert isinstance(shown, str)
    return shown


def test_without_color_there_is_no_escape_sequence() -> None:
    assert "\033" not in text()
    assert "\033[" in text(color=True)


def test_unknown_figures_are_not_measured_rather_than_zero() -> None:
    base = profile()
    unknown = {key: Metric(None, metric.unit) for key, metric in base.metrics.items()}
    shown = text(advise(replace(base, metrics=unknown, facts=Facts())))
    assert "not measured" in shown
    assert " 0 ms" not in shown


def test_a_command_is_one_line_that_can_be_copied() -> None:
    command = f"launchscope check {'--limit syncs_per_step=off ' * 9}train.py"
    options = RenderOptions(60, next_commands=(command,))
    assert f"  {command}" in str(render(advise(profile()), "terminal", options)).splitlines()


@pytest.mark.parametrize("name", ["terminal", "markdown", "html"])
def test_a_blocking_line_deep_in_a_library_keeps_its_number_at_80_columns(name: str) -> None:
    where = SourceLine("/venv/lib/python3.12/site-packages/library/deep/masking.py", 776)
    base = blocked()
    at = replace(base, blockers=(replace(base.blockers[0], where=where),))
    shown = str(render(advise(at), name))
    assert shown.count("library/deep/masking.py:776") >= 2
    assert "site-packages" not in shown


def test_markup_in_names_is_not_interpreted() -> None:
    kernels = (KernelRow("kernel[bold]x[/bold]", 1, 5.0),)
    assert "kernel[bold]x[/bold]" in text(advise(profile(kernels=kernels)))


def test_a_long_name_leaves_the_figures_their_room() -> None:
    kernels = (
        KernelRow("gemm_" * 60, 48, 812.4, SourceLine("model.py", 61)),
        KernelRow("tiny", 1, 2.0),
    )
    shown = text(advise(profile(kernels=kernels)), width=80)
    (line,) = [line for line in shown.splitlines() if "gemm_" in line]
    assert line.split()[:5] == ["48", "812", "us", "100", "%"]
    assert "model.py:61" in line


def test_names_that_are_cut_stay_different() -> None:
    tiles, ends = ("128x64", "64x48"), ("2x1_h_bz_NNT", "2x4_v_bz_NTN", "2x4_h_bz_bias_TNT")
    names = [f"nvjet_sm90_tst_{tile}_64x16_{end}" for tile in tiles for end in ends]
    kernels = tuple(KernelRow(name, 1, 9.0, SourceLine("model.py", 61)) for name in names)
    shown = text(advise(profile(kernels=kernels)), width=60).partition("Top kernels")[2]
    assert len({*"".join(shown.split()).split("model.py:61")[1:]}) == len(names)


def test_kernels_beyond_the_top_are_counted() -> None:
    kernels = tuple(KernelRow(f"kernel_{i}", 1, 100.0 - i) for i in range(12))
    shown = text(advise(profile(kernels=kernels)), top=8)
    assert "kernel_7" in shown
    assert "kernel_8" not in shown
    assert "and 4 more" in shown


def test_a_profile_without_a_verdict_is_still_shown() -> None:
    assert "NO VERDICT" in text(profile())


def test_a_narrow_screen_wraps_labels_and_cuts_no_figure() -> None:
    of = profile()
    samples = {"step_ms": Metric.of_samples([9.9, 9.96, 11.0, 9.95, 10.02], "ms")}
    shown = text(advise(replace(of, metrics=of.metrics | samples)), width=60)
    assert "±" in shown
    assert "…" not in shown.partition("eager ")[2].partition("Where the iteration")[0]


def row(of: Profile, label: str) -> str:
    lines = text(advise(of), width=100).splitlines()
    return " ".join(next(line for line in lines if line.strip().startswith(label + " ")).split())


def test_the_replay_of_a_part_is_not_shown_as_that_of_the_step() -> None:
    scopes = (ScopeReplay("forward_backward", "measured", None, 6.0, 3.14, 30.0),)
    base = profile()
    part = replace(base, replay=replace(base.replay, scope="forward_backward", scopes=scopes))
    assert row(part, "step") == "step 9.02 ± 0.01 ms"
    assert row(part, "forward and backward alone").endswith("6.00 ms 3.14 ms 1.91x")
    assert row(part, "launches per step") == "launches per step 555"


def test_the_replay_of_other_work_is_not_shown_beside_the_prediction_made_of_eagers() -> None:
    base = profile(metrics={"replayed_iteration_ms": PREDICTED})
    other = replace(base, replay=replace(base.replay, work=WorkComparison(False)))
    assert row(other, "step") == "step 9.02 ± 0.01 ms 3.10 ms 2.91x"


def test_a_prediction_shows_the_bounds_that_the_verdict_uses() -> None:
    base = predicted(
        metrics={
            "predicted_replay_ms": Metric(3.1, "ms", low=2.9, high=3.4),
            "removable_pct": share(62.5, 58.0, 64.0),
        },
    )
    assert row(base, "share that a graph removes").endswith(" 58.0 to 64.0 %")


def headings_over(of: Profile) -> dict[str, str]:
    """The section of each finding."""
    found, heading = {}, ""
    for line in text(advise(of)).splitlines():
        if line and not line.startswith(" "):
            heading = line
        elif line.startswith("  LS"):
            found[line.split()[0]] = heading
    return found


def test_only_what_the_reader_can_change_in_the_script_is_something_to_change() -> None:
    base = blocked()
    wide = Metric.of_samples([8.0, 8.5, 9.0, 9.5, 12.0, 14.0, 15.0, 16.0], "ms")
    found = headings_over(replace(base, metrics=base.metrics | {"iteration_ms": wide}))
    assert found["LS030"] == "What to change"
    assert found["LS004"] == "Keep in mind"
    assert found["LS001"] == "Why"
