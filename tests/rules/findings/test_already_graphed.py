from __future__ import annotations

from launchscope.rules.findings.already_graphed import RULE
from tests.rules.cases import Case, titled, with_step
from tests.rules.profiles import profile

GRAPHED = profile(metrics={"graph_launches_per_step": 3}, facts={"graph_kernel_share_pct": 97.0})
CASES = (
    Case(
        "97 % of the kernels in a step already run inside CUDA graphs (3 graph launches per step)",
        GRAPHED,
        profile(),
    ),
    Case(
        "figures are of the compiled step",
        with_step(profile(), compiled=True),
        with_step(GRAPHED, compiled=True),
    ),
)


def test_launches_beside_the_graphs_are_counted() -> None:
    of = profile(
        metrics={"launches_per_step": 1.0},
        facts={"graph_kernel_share_pct": 40.0, "graph_time_share_pct": 88.0},
    )
    (finding,) = titled(RULE, of, "CUDA graphs")
    assert "1 launch per step is eager, with 12 % of the time in kernels." in finding.advice


def test_the_mode_in_use_is_not_advised() -> None:
    reasons = ("skipping cudagraphs due to mutated inputs train.py:9",) * 2
    of = with_step(profile(facts={"skipped_graphs": reasons}), compiled=True)
    (finding,) = titled(RULE, of, "compiled step")
    assert "for 2 compiled parts (skipping cudagraphs due to mutated inputs train.py:9)" in (
        finding.advice
    )
    assert "reduce-overhead" not in finding.advice
