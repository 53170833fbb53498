"""Limits are read as people write them; what could mean two things is refused."""

from __future__ import annotations

import pytest

from launchscope.errors import ConfigError, UsageError
from launchscope.gate.limits import Limit, limits_from_config, limits_from_flags, limits_in_force
from launchscope.gate.metrics import is_timed
from launchscope.model import Mode


def read(word: str) -> Limit:
    limit = next(iter(limits_from_flags([word]).values()))
    assert limit is not None
    return limit


@pytest.mark.parametrize(
    ("word", "relative", "amount", "share"),
    [
        ("launches_per_step=900", False, 900, False),
        ("launches_per_step=+0", True, 0, False),
        ("launches_per_step=+5%", True, 0.05, True),
        ("launch_overhead_pct=20%", False, 20, False),
        ("iteration_ms=12ms", False, 12, False),
        ("speedup=2.5x", False, 2.5, False),
        ("blockers=0", False, 0, False),
    ],
)
def test_a_limit_is_read_in_the_unit_of_its_metric(
    word: str, relative: bool, amount: float, share: bool
) -> None:
    limit = read(word)
    assert (limit.relative, limit.share) == (relative, share)
    assert limit.amount == pytest.approx(amount)


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("launches_per_step", "expected METRIC=VALUE", "--limit launches_per_step=+0"),
        ("launches=+0", "no metric 'launches'", "launches_per_step"),
        ("device_op_per_step=+0", "no metric", "did you mean device_ops_per_step?"),
        ("launches_per_step=few", "'few' is not a limit", "+5%"),
        ("queue_delay_us=1ms", "measured in us", "leave out the unit"),
        ("launches_per_step=90%", "measured in counts", "leave out the unit"),
        ("launches_per_step=+3ms", "measured in counts", "leave out the unit"),
        ("launches_per_step=-5", "'-5' is not a limit", "900"),
        ("launch_overhead_pct=+2pp", "differs from run to run", "the highest value"),
        ("iteration_ms=+5%", "differs from run to run", "the highest value that passes"),
        ("speedup=+5%", "differs from run to run", "the lowest value that passes"),
        ("launches_per_step=nan", "is not a limit", "900"),
        ("launches_per_step=1e999", "is not a limit", "or off"),
        ("lauches=900", "no metric", "did you mean launches_per_step?"),
        ("sync=+0", "no metric", "did you mean syncs_per_step?"),
        ("LAUNCHES_PER_STEP=+0", "no metric", "did you mean launches_per_step?"),
        ("overhead_pct=+1pp", "no metric", "overhead_pct?"),
    ],
)
def test_a_wrong_limit_is_refused_with_a_hint(word: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        limits_from_flags([word])
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_a_limit_in_a_settings_file_may_be_a_number() -> None:
    limits = limits_from_config({"launches_per_step": 900, "syncs_per_step": "+1"}, "file")
    first, second = limits["launches_per_step"], limits["syncs_per_step"]
    assert first is not None
    assert second is not None
    assert (first.relative, first.amount, second.relative) == (False, 900, True)


@pytest.mark.parametrize("value", [True, ["+0"], None, "much"])
def test_a_settings_file_with_another_value_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="file: launches_per_step"):
        limits_from_config({"launches_per_step": value}, "file")


def test_without_any_limits_the_defaults_of_the_mode_are_in_force() -> None:
    def named(mode: Mode) -> set[str]:
        limits = limits_in_force({}, {}, mode)
        assert {limit.text for limit in limits} == {"+0"}
        assert not any(is_timed(limit.metric) for limit in limits)
        return {limit.metric for limit in limits}

    counts = {"device_ops_per_step", "blockers", "graph_breaks", "shape_signatures"}
    traced = {"launches_per_step", "syncs_per_step", "memcpys_per_step"}
    between = {"between_syncs", "between_copies"}
    assert named("gpu") == counts | traced | between | {"between_launches", "between_ops"}
    assert named("rehearsal") == counts | between | {"memcpys_per_step", "between_ops"}
    assert named("trace") == traced | between | {"between_launches"}
    assert limits_in_force({}, {}, "gpu", with_baseline=False) == ()


def test_flags_override_the_settings_file_and_can_lift_a_limit() -> None:
    config = limits_from_config({"launches_per_step": 900, "syncs_per_step": "+0"}, "file")
    flags = limits_from_flags(["launches_per_step=+3", "syncs_per_step=off"])
    found = {limit.metric: limit for limit in limits_in_force(flags, config, "gpu")}
    only = found.pop("launches_per_step")
    assert only.text == "+3"
    assert "syncs_per_step" not in found
    assert {limit.text for limit in found.values()} == {"+0"}


def test_a_settings_file_for_the_gpu_leaves_a_rehearsal_its_defaults() -> None:
    config = limits_from_config({"launches_per_step": 900}, "file")
    found = {limit.metric: limit.text for limit in limits_in_force({}, config, "rehearsal")}
    assert found["device_ops_per_step"] == "+0"
    assert found["launches_per_step"] == "900"
