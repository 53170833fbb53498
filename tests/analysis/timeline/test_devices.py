"""Every GPU and process of a file, one row each."""

from __future__ import annotations

from pathlib import Path

from launchscope.analysis import profile_of_trace
from launchscope.model import DeviceRow, Profile
from launchscope.parser import read_trace
from launchscope.report import RenderOptions, render
from launchscope.rules import advise
from tests.builders import loop_trace, trace
from tests.nsys_builder import NsysBuilder, nsys


def two_of_each() -> NsysBuilder:
    """Process 77 on GPU 0 and process 78 on GPU 1, which does half as much."""
    built = nsys()
    for pid, device, launches in ((77, 0, 10), (78, 1, 5)):
        built.process(pid, device)
        for _ in range(launches):
            built.range("step").launch(kernel_us=6).work(16).launch(kernel_us=2).work(16).end()
    return built


def profile(tmp_path: Path, built: NsysBuilder, step_from: str = "auto") -> Profile:
    read = read_trace(built.write(tmp_path / "report.sqlite"))
    return advise(profile_of_trace(read, "report.sqlite", step_from=step_from))


def test_every_gpu_and_process_has_a_row(tmp_path: Path) -> None:
    found = profile(tmp_path, two_of_each())
    one, other = found.devices
    assert (one.device, one.process, one.launches, one.kernels) == (0, 77, 20, 20)
    assert (other.device, other.process, other.launches, other.kernels) == (1, 78, 10, 10)
    assert (one.busy_ms, other.busy_ms) == (0.08, 0.04)
    assert one.idle_ms > 0.3
    assert (one.in_figures, other.in_figures) == (True, False)
    assert [note for note in found.notes if "figures" in note] == [
        "the figures are those of process 77 on GPU 0; the file holds 2 GPUs and 2 processes"
    ]
    shown = render(found, "terminal", RenderOptions())
    assert isinstance(shown, str)
    assert "GPUs and processes, over the whole trace" in shown


def test_over_the_whole_span_the_figures_are_of_one_gpu_and_the_note_says_which(
    tmp_path: Path,
) -> None:
    found = profile(tmp_path, two_of_each().process(78, 0).launch().launch(), "none")
    assert [(row.device, row.process, row.in_figures) for row in found.devices] == [
        (0, 77, True),
        (0, 78, True),
        (1, 78, False),
    ]
    assert "the figures are those of all processes on GPU 0; the file holds 2 GPUs and 2 " in (
        " ".join(found.notes)
    )


def test_a_file_of_one_gpu_and_process_has_one_row_and_no_table() -> None:
    read = loop_trace(5, lambda builder: builder.launch().launch()).orphan().trace()
    found = advise(profile_of_trace(read, "t.json"))
    (row,) = found.devices
    assert (row.process, row.launches, row.kernels, row.in_figures) == (403, 10, 11, True)
    shown = render(found, "terminal", RenderOptions())
    assert isinstance(shown, str)
    assert "GPUs and processes" not in shown


def test_work_of_an_unknown_process_beside_two_known_ones_has_a_row_of_its_own(
    tmp_path: Path,
) -> None:
    built = two_of_each().process(78, 0).launch().process(79, 0)
    built.launch()
    for rows in (built.rows["CUPTI_ACTIVITY_KIND_KERNEL"],):
        rows[-1]["globalPid"] = None
    built.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].pop()
    found = profile(tmp_path, built)
    unknown: DeviceRow = found.devices[0]
    assert (unknown.device, unknown.process, unknown.launches, unknown.kernels) == (0, None, 0, 1)


def test_a_launch_before_the_recording_is_told_and_does_not_lower_the_coverage() -> None:
    built = loop_trace(5, lambda builder: builder.launch().launch())
    later = [event for event in built.events if event["args"].get("correlation") != 1]
    early = [e for e in built.events if e["args"].get("correlation") == 1 and e["cat"] == "kernel"]
    built.events = [*early, *later]
    found = profile_of_trace(built.trace(), "t.json")
    assert found.facts.join_coverage_pct == 100.0
    assert any("the recording began after the launch of 1 GPU event" in n for n in found.notes)
    unknown = profile_of_trace(trace().step().launch().orphan().end().trace(), "t.json")
    assert unknown.facts.join_coverage_pct == 50.0
