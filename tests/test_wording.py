"""Numbers, counts and lists as people read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from launchscope import wording
from launchscope.model import Metric, SourceLine


def metric(value: float, iqr: float) -> Metric:
    """A metric whose samples have that interquartile range."""
    samples = (value - iqr, value - iqr / 2, value, value + iqr / 2, value + iqr)
    return Metric(value, "ms", False, samples)


# What a function writes for its arguments.
WRITTEN: dict[Callable[..., str], list[tuple[tuple[Any, ...], str]]] = {
    wording.figures: [
        ((9.014,), "9.01"), ((0.0,), "0"), ((1234.5,), "1,234"), ((0.0123,), "0.0123"),
        ((-2.5,), "-2.50"), ((9.996,), "10.0"), ((99.96,), "100"), ((0.09996,), "0.100"),
        ((4e-16,), "0"), ((-4e-16,), "0"),
    ],
    wording.ms: [
        ((9.014,), "9.01 ms"), ((0.0404,), "40.4 us"), ((12_345.0,), "12.3 s"), ((0,), "0 ms"),
    ],
    wording.pct: [
        ((61.4,), "61 %"), ((9.96,), "10 %"), ((0.24,), "0.2 %"), ((0.03,), "< 0.1 %"),
        ((0.0,), "0.0 %"), ((-0.03,), "0.0 %"), ((-0.24,), "-0.2 %"), ((1000,), "1000 %"),
        ((1e13,), "> 1,000 %"), ((-1e13,), "< -1,000 %"),
    ],
    # With decimals enough to differ from the limit.
    wording.pct_beside: [
        ((14.7, 15.0), "14.7 %"), ((14.96, 15.0), "14.96 %"), ((9.3, 15.0), "9.3 %"),
        ((15.0, 15.0), "15 %"),
    ],
    wording.times: [
        ((1.0,), "1.00x"), ((9.994,), "9.99x"), ((9.996,), "10.0x"), ((123.4,), "123x"),
        ((1000,), "1,000x"), ((1000.1,), "> 1,000x"), ((0.004,), "< 0.01x"), ((0.0,), "0.00x"),
    ],
    wording.change: [
        ((10.0, 11.2), "+12 %"), ((10.0, 9.66), "-3.4 %"), ((1.0, 1.0), "+0.0 %"),
        ((0.0, 5.0), ""), ((1.0, 11.0), "+1000 %"), ((1.0, 11.1), "11.1x"),
        ((1e-12, 0.146), "> 1,000x"), ((-1.0, 50.0), "> 1,000 %"), ((1.0, -50.0), "< -1,000 %"),
    ],
    wording.plural: [
        ((1, "step"), "1 step"), ((1200, "launch"), "1,200 launches"), ((1.5, "step"), "1.5 steps"),
    ],
    wording.listed: [((["a", "b", "c"],), "a, b and c")],
    # A line of a library is named without the folder that it is installed in.
    wording.place: [
        ((SourceLine("/env/lib/python3.12/site-packages/timm/optim/lion.py", 7),),
         "timm/optim/lion.py:7"),
        ((SourceLine(r"C:\env\Lib\site-packages\timm\optim\lion.py", 7),),
         r"timm\optim\lion.py:7"),
        ((SourceLine("/usr/lib/python3/dist-packages/x.py", 7),), "x.py:7"),
        ((SourceLine("src/train.py", 7),), "src/train.py:7"),
    ],
    # The median is written to the place of its spread, if there are samples enough for one.
    wording.with_unit: [
        ((metric(9.0137, 0.084),), "9.01 ± 0.04 ms"), ((metric(9.0137, 0.84),), "9.01 ± 0.42 ms"),
        ((metric(9.0137, 0.0192),), "9.01 ± 0.01 ms"), ((metric(523.4, 24.0),), "523 ± 12 ms"),
        ((metric(52_340.0, 2400.0),), "52,300 ± 1,200 ms"),
        ((metric(0.012345, 0.0004),), "0.0123 ± 0.0002 ms"),
        ((metric(9.0, 40.0),), "9.00 ± 20.00 ms"), ((metric(9.0137, 0.0),), "9.01 ms"),
        ((metric(9.0137, 0.0000001),), "9.01 ms"),
        ((Metric.of_samples([9.0137, 9.2], "ms"),), "9.11 ms"),
        ((None,), "not measured"), ((Metric(None, "ms"),), "not measured"),
        ((Metric(None, "1", exact=True),), "not measured"),
        ((Metric(1234, "1", exact=True),), "1,234"),
        ((Metric(555.0, "1", samples=(555, 556, 555, 554, 553)),), "555"),
        ((Metric(2.5, "1", exact=True),), "2.50"), ((Metric(0, "ms"),), "0 ms"),
        ((Metric(23.3, "%"),), "23 %"), ((Metric(0.01, "%"),), "< 0.1 %"),
        ((Metric(2.866, "x"),), "2.87x"), ((Metric(142.0, "MiB"),), "142 MiB"),
    ],
    # A remark is written as a sentence.
    wording.sentence: [
        (("the trace holds no whole step",), "The trace holds no whole step."),
        (("decode: 3 steps",), "Decode: 3 steps."),
        (("Every point measured the same.",), "Every point measured the same."),
        (("launchscope sees no forward",), "launchscope sees no forward."),
        (("rank3.json: is damaged",), "rank3.json: is damaged."),
        (("train.py is missing",), "train.py is missing."),
        (("launch_share_pct: rose",), "launch_share_pct: rose."),
        (("32 kernels",), "32 kernels."),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [(function, *row) for function, rows in WRITTEN.items() for row in rows],
)
def test_it_is_written_as_people_read_it(
    function: Callable[..., str], arguments: tuple[Any, ...], text: str
) -> None:
    assert function(*arguments) == text
