"""JUnit, SARIF, CSV and GitHub's annotations, each read back by a reader that is not ours."""

from __future__ import annotations

import csv
import dataclasses
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path

import junitparser
import pytest
from msgspec.structs import replace
from pydantic import BaseModel
from sarif_pydantic import Location, Sarif

from launchscope.errors import UsageError
from launchscope.model import CheckResult, Profile
from launchscope.report import render, reporter_named
from launchscope.rules import advise
from tests.gate.profiles import (
    checked,
    failed_on_gpu,
    failed_rehearsal,
    gpu,
    not_compared,
    passed_and_stale,
)
from tests.rules.profiles import blocked, gpu_bound, library_blocker, predicted, profile, rehearsal

CHECKS = (failed_rehearsal, failed_on_gpu, passed_and_stale, not_compared)
PROFILES = (profile, blocked, gpu_bound, rehearsal)
MAKERS: tuple[Callable[[], CheckResult | Profile], ...] = (
    *CHECKS,
    *(lambda make=make: advise(make()) for make in PROFILES),
)


def data(value: object, name: str) -> bytes:
    rendered = render(value, name)
    return rendered.encode() if isinstance(rendered, str) else rendered


# ------------------------------------------------------------------------------ JUnit


@pytest.mark.parametrize("make", CHECKS)
def test_junit_is_read_by_junitparser(make: Callable[[], object], tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_bytes(data(make(), "junit"))
    (suite,) = junitparser.JUnitXml.fromfile(str(path))
    cases = list(suite)
    assert suite.tests == len(cases)
    found = {"failures": 0, "errors": 0, "skipped": 0}
    kinds = {junitparser.Failure: "failures", junitparser.Error: "errors",
             junitparser.Skipped: "skipped"}  # fmt: skip
    for case in cases:
        assert case.name
        assert case.classname
        for result in case.result:
            found[kinds[type(result)]] += 1
    assert found == {name: getattr(suite, name) for name in found}


# Attributes and children that the strictest of the common readers (Jenkins' xUnit) takes.
STRICT = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname", "id"},
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": (
        {"name", "classname", "time"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "failure": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
    "skipped": ({"type", "message"}, set()),
    "system-out": (set(), set()),
}


@pytest.mark.parametrize("make", CHECKS)
def test_junit_holds_nothing_a_strict_reader_refuses(make: Callable[[], object]) -> None:
    root = ET.fromstring(data(make(), "junit"))
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = STRICT[element.tag]
        assert set(element.attrib) <= attributes
        assert {child.tag for child in element} <= children
        if element.tag == "testsuite":
            assert {"name", "tests", "failures", "errors"} <= set(element.attrib)


def test_junit_fails_the_case_of_the_limit_that_failed() -> None:
    (suite,) = junitparser.JUnitXml.fromstring(data(failed_on_gpu(), "junit"))
    cases = {case.name: case for case in suite}
    assert list(cases)[-1] == "launch_overhead_pct"
    (failure,) = cases["launches_per_step"].result
    assert failure.message == "rose from 555 to 557; the limit allows at most 555"
    assert "+2 (0 to 2) at train.py:30" in failure.text
    assert cases["memcpys_per_step"].is_passed  # inconclusive is not failed
    assert "inconclusive" in cases["memcpys_per_step"].system_out


def test_junit_calls_what_was_not_compared_an_error() -> None:
    (suite,) = junitparser.JUnitXml.fromstring(data(not_compared(), "junit"))
    assert suite.errors == suite.tests - 1 > 0  # the measurement itself passed


def test_junit_has_the_same_names_whatever_was_measured() -> None:
    def names(value: object) -> list[str]:
        (suite,) = junitparser.JUnitXml.fromstring(data(value, "junit"))
        return [f"{case.classname} {case.name}" for case in suite]

    assert names(checked(gpu({"launches_per_step": 999}), gpu())) == names(checked(gpu(), gpu()))


# ------------------------------------------------------------------------------ SARIF


def unknown_fields(model: object) -> list[str]:
    """Fields that SARIF does not have, anywhere below; the reader keeps them apart."""
    if isinstance(model, list):
        return [name for entry in model for name in unknown_fields(entry)]
    if not isinstance(model, BaseModel):
        return []
    inner = [getattr(model, name) for name in type(model).model_fields]
    return [*(model.model_extra or {}), *unknown_fields(inner)]


@pytest.mark.parametrize("make", MAKERS)
def test_sarif_is_read_by_another_reader(make: Callable[[], object]) -> None:
    log = Sarif.model_validate_json(data(make(), "sarif"))
    assert set(unknown_fields(log)) <= {"$schema"}
    (run,) = log.runs
    assert log.version == "2.1.0"
    rules = [rule.id for rule in run.tool.driver.rules or []]
    assert len(set(rules)) == len(rules)
    for result in run.results or []:
        assert result.rule_index is not None
        assert rules[result.rule_index] == result.rule_id
        assert result.message.text
        ((_, _, line),) = places(result.locations)
        assert (line or 0) > 0


def test_sarif_holds_what_has_a_place() -> None:
    (run,) = Sarif.model_validate_json(data(failed_rehearsal(), "sarif")).runs
    found = [(result.rule_id, *places(result.locations)[0][1:]) for result in run.results or []]
    assert found == [
        ("limit/device_ops_per_step", "train.py", 41),
        ("limit/blockers", "train.py", 41),
        ("new-blocker", "train.py", 31),
        ("new-op", "train.py", 29),
    ]


# -------------------------------------------------------------------------------- CSV


def test_csv_leaves_what_was_not_measured_empty() -> None:
    rows = list(csv.DictReader(StringIO(data(advise(rehearsal()), "csv").decode())))
    values = {row["metric"]: row["value"] for row in rows}
    assert values["step_ms"] == ""
    assert values["device_ops_per_step"] == "71"


# ----------------------------------------------------------------------------- GitHub


def test_a_format_for_checks_alone_refuses_a_profile() -> None:
    with pytest.raises(UsageError, match="github cannot show a Profile"):
        reporter_named("github").render(profile())


@pytest.mark.parametrize("environment", ["/env/lib", ".venv/lib"])
def test_sarif_relates_the_librarys_line_to_the_persons(environment: str) -> None:
    blocker = library_blocker()
    assert blocker.library is not None
    where = dataclasses.replace(
        blocker.library.where, file=f"{environment}/site-packages/toymodels/encoder.py"
    )
    blocker = replace(blocker, library=dataclasses.replace(blocker.library, where=where))
    log = Sarif.model_validate_json(data(advise(predicted(blockers=(blocker,))), "sarif"))
    (result,) = (found for found in log.runs[0].results or () if found.rule_id == "LS030")
    assert places(result.locations) == [("%SRCROOT%", "train.py", 52)]
    assert places(result.related_locations) == [("%SITEPACKAGES%", "toymodels/encoder.py", 23)]


def places(locations: Sequence[Location] | None) -> list[tuple[str | None, str | None, int | None]]:
    found = []
    for location in locations or ():
        physical = location.physical_location
        assert physical is not None
        artifact, region = physical.artifact_location, physical.region
        assert artifact is not None
        assert region is not None
        found.append((artifact.uri_base_id, artifact.uri, region.start_line))
    return found
