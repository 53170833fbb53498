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


def test_the_mode_in_use_is_not_advised() -> None:
    reasons = ("skipping cudagraphs due to mutated inputs train.py:9",) * 2
    of = with_step(profile(facts={"skipped_graphs": reasons}), compiled=True)
    (finding,) = titled(RULE, of, "compiled step")
    assert "for 2 compiled parts (skipping cudagraphs due to mutated inputs train.py:9)" in (
        finding.advice
    )
    assert "reduce-overhead" not in finding.advice
