"""The trace with launchscope's lanes: nothing of it changes, and they add up to the metrics."""

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
from launchscope.report import RenderOptions, render, reporter_for_path, reporter_named
from launchscope.report.documents.labels import CAUSES
from launchscope.rules import advise
from launchscope.workflows.load_input import ReadOptions, profile_of
from tests.builders import PID, TraceBuilder, loop_trace
from tests.kineto_text import LAYOUTS, kineto_text
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

    def on_work(work: Work, pauses: bool) -> None:
        found.append(annotate(work, pauses))

    profile = profile_of(path, ReadOptions(15.0, None, details=True, on_work=on_work, **options))
    content = reporter_named("perfetto").content(profile, RenderOptions(trace=found[0]))
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


def per_iteration_ms(profile: Profile, slices: list[dict[str, Any]], key: str) -> None:
    """Asserts that the slices of each iteration in the figures sum to a sample of the metric."""
    sums: dict[int, int] = defaultdict(int)
    for event in slices:
        if event["args"]["in_figures"]:
            sums[event["args"]["iteration"]] += nanoseconds(event["dur"])
    metric = profile.metrics[key]
    padded = [*sums.values(), *[0] * len(metric.samples)]
    assert sorted(padded[: len(metric.samples)]) == [
        round(1e6 * ms) for ms in sorted(metric.samples)
    ]


def step(builder: TraceBuilder) -> None:
    builder.data(300).op("aten::mul").launch(kernel_us=400, stream=7).launch(kernel_us=40)
    for index in range(6):
        builder.op("aten::add").work(30).launch(kernel_us=4, name=f"k{index % 3}")
    builder.launch(kernel_us=900, name=NCCL, stream=20).launch(kernel_us=30).sync().work(50)


def unchanged(original: bytes, made: bytes) -> bytes:
    """What was added to the original, which is otherwise there byte for byte."""
    at = next(i for i, (a, b) in enumerate(zip(original, made)) if a != b)
    at = made.rindex(b"}", 0, at) + 1
    rest = original[at:]
    assert made.startswith(original[:at])
    assert made.endswith(rest)
    return made[at : len(made) - len(rest)]


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_the_file_stays_as_it_is_and_the_lanes_follow_its_last_event(
    tmp_path: Path, layout: str, name: str
) -> None:
    text = LAYOUTS[layout](loop_trace(5, step).document()).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    made = b"".join(annotated(tmp_path / name)[1])
    assert unchanged(text, made).startswith(b",")
    events = json.loads(made)["traceEvents"]
    assert [e for e in events if e["pid"] != OURS] == json.loads(text)["traceEvents"]
    assert lanes_of(events).keys() >= LANES


@pytest.mark.parametrize("name", ["small_gpt", "item_in_step", "lstm"])
def test_a_recorded_trace_keeps_its_flows_and_metadata(name: str) -> None:
    path = RECORDINGS / name / "trace.kineto.json.gz"
    text, made = b"".join(decompress(path, [])), b"".join(annotated(RECORDINGS / name)[1])
    unchanged(text, made)
    before, after = json.loads(text), json.loads(made)
    ours = [event for event in after["traceEvents"] if event["pid"] == OURS]
    assert after["traceEvents"] == [*before["traceEvents"], *ours]
    assert {e["ph"] for e in before["traceEvents"]} >= {"X", "M", "s", "f"}
    assert {**before, "traceEvents": 0} == {**after, "traceEvents": 0}
    assert {event["ph"] for event in ours} == {"X", "M", "C"}


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

    assert median(by_iteration("sync")) / 1e6 == pytest.approx(
        profile.value("sync_wait_ms"), abs=1e-9
    )
    assert median(by_iteration("dispatch")) / 1e6 == pytest.approx(
        profile.value("dispatch_gap_ms"), abs=1e-9
    )
    spans = {e["args"]["iteration"]: nanoseconds(e["dur"]) for e in lanes["iterations, on the GPU"]}
    all_idle = by_iteration(*CAUSES)
    busy = [round(1e6 * ms) for ms in profile.metrics["iteration_busy_ms"].samples]
    used = [
        n for n in spans if n in {e["args"]["iteration"] for e in idle if e["args"]["in_figures"]}
    ]
    if len(used) == len(busy):  # the GPU worked in each of them
        assert [a + b for a, b in zip(busy, all_idle)] == [spans[n] for n in used]
    per_iteration_ms(profile, lanes["exposed collectives"], "exposed_communication_ms")
    held = [e for lane, found in lanes.items() if "back-pressure" in lane for e in found]
    per_iteration_ms(profile, held, "blocked_launch_ms")


def test_slices_of_a_lane_do_not_overlap() -> None:
    _, content = annotated(RECORDINGS / "small_gpt")
    for slices in lanes_of(json.loads(b"".join(content))["traceEvents"]).values():
        until = 0
        for event in slices:
            begin = nanoseconds(event["ts"])
            assert begin >= until
            until = begin + nanoseconds(event["dur"])


def test_exposed_collectives_and_back_pressure_have_lanes(tmp_path: Path) -> None:
    def busy(builder: TraceBuilder) -> None:
        step(builder)
        for _ in range(700):
            builder.launch(kernel_us=30, call_us=2)
        builder.launch(kernel_us=30, call_us=9_000).sync()

    path = tmp_path / "t.json"
    path.write_text(kineto_text(loop_trace(5, busy).document()))
    profile, content = annotated(path)
    lanes = lanes_of(json.loads(b"".join(content))["traceEvents"])
    assert (profile.value("exposed_communication_ms") or 0) > 0
    assert (profile.value("blocked_launch_ms") or 0) > 8
    per_iteration_ms(profile, lanes["exposed collectives"], "exposed_communication_ms")
    per_iteration_ms(profile, lanes[f"back-pressure, thread {PID}"], "blocked_launch_ms")


@pytest.mark.parametrize(("start", "scale"), [(-5_000_000, 1), (10**18, 1000)])
def test_the_lanes_are_on_the_clock_of_the_file(tmp_path: Path, start: int, scale: int) -> None:
    """It may begin before 0, or count nanoseconds since 1970."""
    document = loop_trace(5, step).document()
    first = min(event["ts"] for event in document["traceEvents"])
    for event in document["traceEvents"]:
        event["ts"] = round((event["ts"] - first) * scale) + start
        if "dur" in event:
            event["dur"] *= scale
    (tmp_path / "t.json").write_text(json.dumps(document))
    events = json.loads(b"".join(annotated(tmp_path / "t.json")[1]))["traceEvents"]
    steps = [event for event in events if event["pid"] != OURS and "step" in event["name"]]
    ours = lanes_of(events)["steps, on the host"]
    loaded = 300 * scale  # a step begins behind its data
    assert [(e["ts"] - loaded, e["dur"] + loaded) for e in ours] == [
        (pytest.approx(e["ts"], abs=1e-3), pytest.approx(e["dur"])) for e in steps
    ]


def test_lanes_of_the_gpu_lie_over_its_events(tmp_path: Path) -> None:
    def waiting(builder: TraceBuilder) -> None:
        step(builder)
        builder.sync(api="cudaDeviceSynchronize")

    document = loop_trace(8, waiting).document()
    device = [event for event in document["traceEvents"] if event["cat"] == "kernel"]
    (tmp_path / "t.json").write_text(json.dumps(document))
    _, content = annotated(tmp_path / "t.json")
    lanes = lanes_of(json.loads(b"".join(content))["traceEvents"])
    ends = {nanoseconds(event["ts"] + event["dur"]) for event in device}
    for event in lanes["iterations, on the GPU"]:
        assert nanoseconds(event["ts"] + event["dur"]) in ends
    for gap in lanes["GPU idle, by cause"]:
        for event in device:
            begin, end = event["ts"], event["ts"] + event["dur"]
            assert end <= gap["ts"] + 1e-3 or begin >= gap["ts"] + gap["dur"] - 1e-3
    collectives = [event for event in device if event["name"] == NCCL]
    assert len(collectives) == len(lanes["exposed collectives"])
    for whole, exposed in zip(collectives, lanes["exposed collectives"]):
        assert whole["ts"] <= exposed["ts"] < whole["ts"] + whole["dur"]


@pytest.mark.parametrize("layout", ["kineto", "compact"])
@pytest.mark.parametrize("whole", ["object", "list"])
def test_a_file_that_breaks_off_ends_after_its_last_whole_event(
    tmp_path: Path, layout: str, whole: str
) -> None:
    document = loop_trace(40, step).document()
    text = LAYOUTS[layout](document)
    if whole == "list":
        text = text[text.index("[", text.index("traceEvents")) : text.rindex("]") + 1]
    for end in (len(text) * 2 // 3, text.rindex("}", 0, len(text) * 2 // 3) + 1):
        (tmp_path / "t.json").write_text(text[:end])
        made = json.loads(b"".join(annotated(tmp_path / "t.json")[1]))
        events = made if whole == "list" else made["traceEvents"]
        kept = [event for event in events if event["pid"] != OURS]
        assert 100 < len(kept) < len(document["traceEvents"])
        assert kept == document["traceEvents"][: len(kept)]


def test_a_large_trace_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(kineto_text(loop_trace(600, step).document()))
    sizes = [len(block) for block in annotated(path)[1]]
    assert sum(sizes) > path.stat().st_size > 3_000_000
    assert max(sizes) < 1_500_000


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


def test_a_profile_without_its_trace_shows_its_typical_steps() -> None:
    profile = profile_of(RECORDINGS / "small_gpt", ReadOptions(15.0, None))
    events = json.loads(render(profile, "perfetto"))["traceEvents"]
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        "launchscope: typical eager iteration",
        "launchscope: typical replayed step",
    }
    assert profile.timelines is not None
    lanes = [
        *profile.timelines.eager.lanes,
        *(profile.timelines.replay or profile.timelines.eager).lanes,
    ]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == sum(len(lane.start_ns) for lane in lanes)
    assert sum(nanoseconds(e["dur"]) for e in slices) == sum(
        sum(lane.duration_ns) for lane in lanes
    )


def test_a_profile_without_a_traced_step_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="nothing to show on a timeline") as error:
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


def test_the_suffix_chooses_the_trace_and_not_the_profile() -> None:
    for name in ("a.perfetto.json", "A.Perfetto.JSON.gz"):
        assert reporter_for_path(Path(name)).name == "perfetto"
    assert reporter_for_path(Path("perfetto.json")).name == "json"
