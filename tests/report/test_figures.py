"""No report shows a figure that a reader has to take for a mistake."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

from launchscope.analysis.comparison.profiles import difference
from launchscope.model import Difference, Metric, Profile
from launchscope.report import RenderOptions, render
from launchscope.rules import advise
from tests.report.test_golden import VALUES
from tests.rules.profiles import predicted, profile

FOR_PEOPLE = ("terminal", "markdown", "html")
BOUNDS = re.compile(r"(?:>|&gt;|<|&lt;) -?1,000(?: %|x)")
ABSURD = {
    "a percentage beyond 1,000 %": r"(?:\d,\d{3}|\d{5,})[\d,.]* %",
    "a ratio beyond 1,000": r"\d,\d{3}[\d,.]*x\b",
    "an exponent": r"\d[eE]\+?\d{2}\b",
    "no number": r"\b(?:nan|inf|None)\b",
}
NEGATIVE_TIME = r"(?<!\w)-\d[\d,.]* (?:ns|us|ms|s)\b"


def absurd_in(shown: str) -> list[str]:
    without = BOUNDS.sub("", shown.replace("\\", ""))
    return [found[0] for pattern in ABSURD.values() for found in re.finditer(pattern, without)]


def text_of(value: object, name: str, width: int = 400) -> str:
    rendered = render(value, name, RenderOptions(width=width))
    assert isinstance(rendered, str)
    body = rendered.partition("<body>")[2].replace("\xa0", " ")
    if not body:
        return rendered
    drawn = json.loads(body.partition('id="data">')[2].partition("</script>")[0])
    return "\n".join((body.partition("<script")[0], *texts_in(drawn)))


def texts_in(value: object) -> list[str]:
    """The texts in JSON, which the page draws."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [text for item in inner for text in texts_in(item)]
    return [value] if isinstance(value, str) else []


def extreme(factor: float) -> Profile:
    """A Profile whose times, counts and shares are all out of the ordinary."""
    base = predicted() if factor < 1 else profile()
    metrics = {
        key: replace(metric, value=metric.value * factor, exact=False, samples=())
        for key, metric in base.metrics.items()
        if metric.value is not None
    }
    return advise(replace(base, metrics=base.metrics | metrics))


def trace(**values: float) -> Profile:
    base = predicted()
    known = {key: Metric(value, unit_of(key)) for key, value in values.items()}
    return advise(replace(base, mode="trace", metrics=base.metrics | known))


def unit_of(key: str) -> str:
    return {"us": "us", "ms": "ms", "pct": "%"}.get(key.rpartition("_")[2], "1")


def made_extreme() -> dict[str, Profile | Difference]:
    tiny, usual, huge = extreme(1e-12), advise(profile()), extreme(1e10)
    return {
        "huge": huge,
        "tiny": tiny,
        "from tiny to usual": difference(tiny, usual),
        "from usual to huge": difference(usual, huge),
        "from huge to tiny": difference(huge, tiny),
        "busy beyond the iteration": advise(profile(metrics={"iteration_busy_ms": 1e6})),
        "negative queue delay": trace(queue_delay_us=-508.0, tklqt_ms=0.5, hdbi=0.2),
    }


@pytest.mark.parametrize("name", FOR_PEOPLE)
@pytest.mark.parametrize("case", sorted(made_extreme()))
def test_extreme_values_make_no_absurd_figures(case: str, name: str) -> None:
    shown = text_of(made_extreme()[case], name)
    assert absurd_in(shown) == []


@pytest.mark.parametrize("case", sorted(VALUES))
def test_no_figure_is_absurd_or_negative_and_a_median_has_the_decimals_of_its_spread(
    case: str,
) -> None:
    shown = text_of(VALUES[case](), "terminal")
    assert absurd_in(shown) == []
    assert case == "difference" or not re.findall(NEGATIVE_TIME, shown)
    for median, spread in re.findall(r"([\d,.]+) ± ([\d,.]+)", shown):
        assert len(median.partition(".")[2]) == len(spread.partition(".")[2])


def test_launch_calls_of_a_step_without_launches_are_those_of_its_graphs() -> None:
    graphed = profile(metrics={"launches_per_step": 0, "graph_launches_per_step": 3})
    lines = [line.split() for line in text_of(advise(graphed), "terminal").splitlines()]
    assert ["launches", "per", "step", "0"] in [line[:4] for line in lines]
    assert ["graph", "launches", "per", "step", "3"] in lines


@pytest.mark.parametrize("name", FOR_PEOPLE)
@pytest.mark.parametrize("case", sorted(VALUES))
def test_the_sign_of_a_spread_is_explained_once_where_it_occurs(case: str, name: str) -> None:
    shown = text_of(VALUES[case](), name)
    assert shown.count("half of the interquartile range") == ("±" in shown)
