"""Values that cross the process boundary: to JSON data and back with the standard library."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from launchscope.model import (
    BlockerRecord,
    Calibration,
    Cause,
    InspectResult,
    OpRecord,
    ReplayResult,
    Schedule,
    Target,
    TensorShape,
    TraceResult,
    VerifyResult,
)
from launchscope.runner.protocol.folder import Plan
from launchscope.runner.protocol.plain import from_plain, to_plain

RESULTS = [
    TraceResult("trace.json", 6, 1, True, Calibration(5.0, 6.5, 700, None), (0, 1)),
    InspectResult(
        steps=1,
        signatures=("a", "b"),
        inputs=((TensorShape((2,), "int64"),),),
        device_ops=(3,),
        blockers=(BlockerRecord("aten.equal", "sync", None, 2),),
        ops=(OpRecord("aten.add", None),),
    ),
    ReplayResult("measured", eager_bursts=((1.0, 2.0), (3.0,)), graph_nodes=7),
    VerifyResult("different", None, (0.5,), (), (Cause("scalar", None, 1.0, 2.0, op="aten.mul"),)),
]


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_both_sides_read_the_same_value_from_what_the_child_writes(result: Any) -> None:
    written = json.dumps(to_plain(result))
    assert from_plain(type(result), json.loads(written)) == result
    assert msgspec.json.decode(written, type=type(result)) == result


def test_a_plan_keeps_its_typed_fields() -> None:
    plan = Plan(Target("script", "t.py", ("-v",)), ("timing",), Schedule())
    assert from_plain(Plan, json.loads(json.dumps(to_plain(plan)))) == plan


def test_fields_of_another_version_are_ignored_and_missing_ones_have_their_default() -> None:
    target = from_plain(Target, {"kind": "script", "name": "t.py", "color": "red"})
    assert target == Target("script", "t.py")
