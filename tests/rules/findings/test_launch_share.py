from __future__ import annotations

import pytest
from msgspec.structs import replace

from launchscope.model import Metric
from launchscope.rules.findings.launch_share import RULE
from tests.rules.cases import Case, titled
from tests.rules.profiles import gpu_bound, profile, share

LITTLE = {"launch_share_pct": 8.0, "removable_pct": 3.0}
CASES = (
    Case("5.80 ms of 9.39 ms", profile(), gpu_bound()),
    Case("take 54 % of the step", gpu_bound(), profile(metrics=LITTLE)),
    Case("(median of all kernels: 910 us)", gpu_bound(), profile()),
)


def test_launch_share_explains_back_pressure_when_a_replay_would_not_pay() -> None:
    (finding,) = titled(RULE, gpu_bound(), "Launch calls")
    assert "27.5 ms of the 28.1 ms in launch calls is back-pressure" in finding.advice


def test_launch_share_explains_python_between_launches_when_a_replay_pays() -> None:
    (finding,) = titled(RULE, profile(metrics={"launch_share_pct": 8.0}), "Launch calls")
    assert "4.10 ms for Python and the dispatcher" in finding.advice


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"data_wait_ms": 20.0, "gpu_idle_ms": 22.0}, "waits for data for 20.0 ms per iteration"),
        ({"sync_wait_ms": 20.0, "gpu_idle_ms": 22.0}, "waits in synchronizations for 20.0 ms"),
        ({"data_wait_ms": 3.0, "gpu_idle_ms": 22.0}, "is back-pressure"),
        ({"blocked_launch_ms": 1.0, "gpu_idle_ms": 0.2}, "idle for only 0.200 ms of the 52.1 ms"),
        ({"blocked_launch_ms": 1.0, "gpu_idle_ms": 22.0}, "do not show the cause"),
    ],
    ids=["data", "sync", "data is the smaller part", "little idle", "unknown"],
)
def test_a_high_launch_share_that_would_not_pay_is_explained_by_the_largest_cause(
    metrics: dict[str, float], said: str
) -> None:
    base = gpu_bound()
    measured = base.metrics | {key: Metric(value, "ms") for key, value in metrics.items()}
    (finding,) = titled(RULE, replace(base, metrics=measured), "Launch calls")
    assert said in finding.advice


@pytest.mark.parametrize(("share", "shown"), [(14.8, "14.8 %"), (15.3, "15.3 %"), (23.3, "23 %")])
def test_a_launch_share_next_to_the_15_percent_rule_shows_the_difference(
    share: float, shown: str
) -> None:
    of = profile(metrics={"launch_share_pct": share})
    assert titled(RULE, of, f"Launch calls take {shown} of the step")


def test_the_15_percent_rule_is_not_compared_with_a_gain_that_is_not_known() -> None:
    of = profile(metrics={"removable_pct": share(10, -20, 40)})
    (finding,) = titled(RULE, of, "Launch calls")
    assert "the timings do not show whether a replay pays (LS001)" in finding.advice
    assert "does not reach" not in finding.advice
