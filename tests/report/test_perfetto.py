"""The trace with launchscope's lanes, which add up to the metrics."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from launchscope.analysis.timeline.annotations import Annotations, annotate
from launchscope.analysis.timeline.work import Work
from launchscope.cli import main
from launchscope.errors import UsageError
from launchscope.host import Blocks
from launchscope.model import Profile
from launchscope.parser.decompress import decompress
from launchscope.report import RenderOptions, render, reporter_named
from launchscope.report.documents.labels import CAUSES
from launchscope.rules import advise
from launchscope.workflows.load_input import ReadOptions, profile_of
from tests.builders import TraceBuilder, loop_trace
from tests.kineto_text import kineto_text
from tests.nsys_builder import nsys
from tests.rules.profiles import rehearsal

pytestmark = pytest.mark.slow

RECORDINGS = Path(__file__).parents[2] / "sample_workloads" / "recordings"
TRUTH = Path(__file__).parents[1] / "truth"
OURS = 2_000_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
LANES = {
    "iterations, on the host", "steps, on the host", "iterations, on the GPU", "GPU idle, by cause",
}  # fmt: skip


def annotated(path: Path, **options: Any) -> tuple[Profile, Blocks]:
    found: list[Annotations] = []

    def on_work(work: Work) -> None:
        found.append(annotate(work))

    profile = profile_of(path, ReadOptions(15.0, None, details=True, on_work=on_work, **options))
    content = reporter_named("perfetto").render(profile, RenderOptions(trace=found[0]))
    assert isinstance(content, Blocks)
    return profile, content


def lanes_of(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Our slices, by lane."""
    ours = [event for event in events if event["pid"] == OURS]
    names = {e["tid"]: e["args"]["name"] for e in ours if e["name"] == "thread_name"}
    found = defaultdict(list)
    for event in ours:
        if event["ph"] == "X":
            found[names[event["tid"]]].append(event)
    return found


def nanoseconds(us: float) -> int:
    return round(us * 1000)


def step(builder: TraceBuilder) -> None:
    builder.data(300).op("aten::mul").launch(kernel_us=400, stream=7).launch(kernel_us=40)
    for index in range(6):
        builder.op("aten::add").work(30).launch(kernel_us=4, name=f"k{index % 3}")
    builder.launch(kernel_us=900, name=NCCL, stream=20).launch(kernel_us=30).sync().work(50)


TRACES = [
    *(RECORDINGS / name for name in ("small_gpt", "item_in_step")),
    *(TRUTH / f"{name}.json.gz" for name in ("training_eager", "rank0")),
]


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_the_intervals_add_up_to_the_metrics(path: Path) -> None:
    profile, content = annotated(path)
    lanes = lanes_of(json.loads(b"".join(content))["traceEvents"])
    idle = lanes["GPU idle, by cause"]

    def by_iteration(*causes: str) -> list[int]:
        names = {CAUSES[cause] for cause in causes}  # type: ignore[index]
        sums = {e["args"]["iteration"]: 0 for e in lanes["iterations, on the host"]
                if e["args"]["in_figures"]}  # fmt: skip
        for event in idle:
            if event["name"] in names and event["args"]["in_figures"]:
                sums[event["args"]["iteration"]] += nanoseconds(event["dur"])
        return list(sums.values())

    for key, cause in (("sync_wait_ms", "sync"), ("dispatch_gap_ms", "dispatch")):
        assert median(by_iteration(cause)) / 1e6 == pytest.approx(profile.value(key), abs=1e-9)
    spans = {e["args"]["iteration"]: nanoseconds(e["dur"]) for e in lanes["iterations, on the GPU"]}
    all_idle = by_iteration(*CAUSES)
    busy = [round(1e6 * ms) for ms in profile.metrics["iteration_busy_ms"].samples]
    in_figures = {e["args"]["iteration"] for e in idle if e["args"]["in_figures"]}
    used = [n for n in spans if n in in_figures]
    if len(used) == len(busy):  # the GPU worked in each of them
        assert [a + b for a, b in zip(busy, all_idle)] == [spans[n] for n in used]


def test_slices_of_a_lane_do_not_overlap() -> None:
    _, content = annotated(RECORDINGS / "small_gpt")
    for slices in lanes_of(json.loads(b"".join(content))["traceEvents"]).values():
        until = 0
        for event in slices:
            begin = nanoseconds(event["ts"])
            assert begin >= until
            until = begin + nanoseconds(event["dur"])


def test_lanes_of_the_gpu_lie_over_its_events(tmp_path: Path) -> None:
    def waiting(builder: TraceBuilder) -> None:
        step(builder)
        builder.sync(api="cudaDeviceSynchronize")

    (tmp_path / "t.json").write_text(json.dumps(loop_trace(8, waiting).document()))
    _, content = annotated(tmp_path / "t.json")
    events = json.loads(b"".join(content))["traceEvents"]
    device = [event for event in events if event["cat"] == "gpu"]
    lanes = lanes_of(events)
    ends = {nanoseconds(event["ts"] + event["dur"]) for event in device}
    for event in lanes["iterations, on the GPU"]:
        assert nanoseconds(event["ts"] + event["dur"]) in ends
    for gap in lanes["GPU idle, by cause"]:
        for event in device:
            begin, end = event["ts"], event["ts"] + event["dur"]
            assert end <= gap["ts"] + 1e-3 or begin >= gap["ts"] + gap["dur"] - 1e-3


def test_a_large_trace_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(kineto_text(loop_trace(600, step).document()))
    sizes = [len(block) for block in annotated(path)[1]]
    assert sum(sizes) > 3_000_000
    assert max(sizes) < 1_500_000


@pytest.mark.parametrize("name", ["small_gpt", "item_in_step", "lstm"])
def test_every_event_of_a_recorded_trace_is_there_with_its_time(name: str) -> None:
    text = b"".join(decompress(RECORDINGS / name / "trace.kineto.json.gz", []))
    given = [e for e in json.loads(text)["traceEvents"] if e["ph"] == "X"]
    made = json.loads(b"".join(annotated(RECORDINGS / name)[1]))["traceEvents"]
    for categories, category in (
        ({"kernel", "gpu_memcpy", "gpu_memset"}, "gpu"),
        ({"cuda_runtime", "cuda_driver"}, "cuda_runtime"),
        ({"cpu_op"}, "cpu_op"),
    ):
        before = sorted((nanoseconds(e["dur"]), e["name"]) for e in given if e["cat"] in categories)
        after = sorted((nanoseconds(e["dur"]), e["name"]) for e in made
                       if e["cat"] == category and e["ph"] == "X")  # fmt: skip
        assert before == after != []


def test_an_export_of_nsys_is_written_from_its_columns(tmp_path: Path) -> None:
    built = nsys()
    for _ in range(6):
        built.launch(name="a").launch(name="b").work(300)
    _, content = annotated(built.write(tmp_path / "t.sqlite"))
    events = json.loads(b"".join(content))["traceEvents"]
    kernels = [e for e in events if e["cat"] == "gpu"]
    assert [e["name"] for e in kernels] == ["a", "b"] * 6
    arrows = {phase: [e["id"] for e in events if e["ph"] == phase] for phase in "sf"}
    assert arrows["s"] == arrows["f"] != []
    assert lanes_of(events).keys() >= LANES


def test_a_profile_without_its_trace_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="does not hold its trace") as error:
        render(advise(rehearsal()), "perfetto")
    assert "--keep-trace" in (error.value.hint or "")


@pytest.mark.parametrize("shown", ["terminal", "markdown", "csv"])
def test_a_report_beside_it_leaves_the_names_of_the_trace_alone(
    tmp_path: Path, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "ncclDevKernel_AllReduce\x1b]0;evil\x07##[error]"
    built = loop_trace(5, lambda builder: builder.op("aten::mul").work(20).launch(name=name))
    source, made = tmp_path / "t.json", tmp_path / "a.perfetto.json"
    source.write_text(kineto_text(built.document()))
    assert main(["report", str(source), "-q", "-f", shown, "-o", str(made)]) == 0
    assert capsys.readouterr().err == ""
    names = [event["name"] for event in json.loads(made.read_bytes())["traceEvents"]]
    assert name in names


def test_the_command_writes_plain_and_compressed_files_and_replaces_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "t.json"
    source.write_text(kineto_text(loop_trace(5, step).document()))
    plain, packed = tmp_path / "a.perfetto.json", tmp_path / "A.perfetto.json.GZ"
    command = ["report", str(source), "-o", str(plain), "-o", str(packed), "-f", "perfetto"]
    for _ in range(2):
        assert main(command) == 0
        shown = capsys.readouterr().out
        assert plain.read_text() == gzip.decompress(packed.read_bytes()).decode() == shown
    assert main(["report", str(plain), "-o", str(plain)]) == 2
    assert main(["report", str(source), "-o", str(source)]) == 2
