"""A trace by itself: the same figures as the live run, and as an independent oracle."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from launchscope.analysis import build_profile, profile_of_trace
from launchscope.errors import InputError
from launchscope.model import Profile
from launchscope.parser import read_recording, read_trace
from launchscope.parser.sources import Reading
from launchscope.rules import advise
from tests.builders import TraceBuilder, known, loop_trace, trace, traced_iteration_ms
from tests.nsys_builder import nsys
from tests.rules.cases import verdict
from tests.truth.raw import file_of, length

RECORDINGS = sorted((Path(__file__).parents[2] / "sample_workloads/recordings").iterdir())
TRACES = [file for folder in RECORDINGS for file in sorted(folder.glob("*.kineto.json.gz"))]
REPLAYED = [folder for folder in RECORDINGS if (folder / "replay.kineto.json.gz").exists()]
COUNTS = (
    "launches_per_step", "memcpys_per_step", "memsets_per_step", "graph_launches_per_step",
    "syncs_per_step", "kernels_per_step",
)  # fmt: skip
DEVICE_TIMES = ("gpu_busy_ms", "iteration_busy_ms", "predicted_replay_ms", "queue_delay_us")
# The run counts an optimizer's parameters, a trace those that get a gradient: not every expert of
# the one, and the discriminator's of the other as often as the generator trains.
OTHER_PARAMETERS = {"data_dependent", "gan"}


@cache
def live(folder: Path) -> Profile:
    return advise(build_profile(read_recording(folder)))


@cache
def from_file(folder: Path) -> Profile:
    file = folder / "trace.kineto.json.gz"
    return advise(profile_of_trace(read_trace(file, Reading(op_names=False)), file.name))


def profile(built: TraceBuilder, **how: str) -> Profile:
    return advise(profile_of_trace(built.trace(), "trace.json", **how))  # type: ignore[arg-type]


# --------------------------------------------------------------- recordings read back


@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda folder: folder.name)
def test_metrics_of_the_file_equal_those_of_the_live_run(folder: Path) -> None:
    one, other = live(folder), from_file(folder)
    for key in (*COUNTS, *DEVICE_TIMES):
        if key == "predicted_replay_ms" and folder.name in OTHER_PARAMETERS:
            continue
        assert other.value(key) == one.value(key), key
    assert [(k.name, k.count, k.total_us) for k in other.kernels] == [
        (k.name, k.count, k.total_us) for k in one.kernels
    ]


@pytest.mark.parametrize("folder", REPLAYED, ids=lambda folder: folder.name)
def test_the_gain_that_was_measured_lies_within_the_bounds_of_the_file(folder: Path) -> None:
    measured, read = live(folder).value("removable_pct"), from_file(folder)
    assert measured is not None
    assert verdict(live(folder)).basis != "predicted"
    removable = read.metrics["removable_pct"]
    low, high = known(removable.low), known(removable.high)
    # The loop was measured some seconds later, and a trace stretches the host's part of it.
    assert low - 6.0 <= measured <= high + 6.0


@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda folder: folder.name)
def test_the_verdict_of_the_file_is_predicted_and_goes_the_same_way(folder: Path) -> None:
    one, other = verdict(live(folder)), verdict(from_file(folder))
    assert other.basis == "predicted"
    # A trace does not show what has to be fixed first, nor a wrong result.
    assert (other.recommendation == "adopt") == (one.recommendation != "stay_eager")


@pytest.mark.parametrize("file", TRACES, ids=lambda file: f"{file.parent.name}-{file.name[:6]}")
def test_an_independent_oracle_agrees_over_the_whole_span(file: Path) -> None:
    work = file_of(file).work
    spans = [(each.begin, each.end) for each in work]
    calls = [each.call.begin for each in work if each.call]
    first, last = min(*calls, spans[0][0]), max(end for _, end in spans)
    read = profile_of_trace(read_trace(file), file.name, step_from="none")
    assert read.step is not None
    assert read.step.boundary == "none"
    graphs = read.value("graph_launches_per_step") or 0
    launched = {each.number for each in work if each.is_kernel and each.call}
    assert (read.value("launches_per_step") or 0) + graphs == len(launched)
    assert round(known(read.value("iteration_busy_ms")) * 1e6) == length(spans)
    assert round(known(read.value("iteration_ms")) * 1e6) == last - first


# ------------------------------------------------------------------------- by itself


def step(builder: TraceBuilder) -> None:
    for index in range(20):
        builder.op("aten::mul").work(20).launch(kernel_us=4, name=f"k{index % 5}")


def why_unknown(read: Profile) -> str | None:
    """The reason for the missing verdict; a gain must not be claimed beside it."""
    given, reason = verdict(read), read.facts.gain_unknown
    if reason is None:
        assert given.recommendation != "inconclusive"
        return None
    assert given.recommendation == "inconclusive"
    claims = (given.speedup, given.iteration_speedup, given.removable_pct)
    assert claims == (None, None, None)
    assert read.value("replayed_iteration_ms") is None
    assert {"LS001", "LS002"}.isdisjoint(found.code for found in read.findings)
    return reason.code


def unlike(count: int) -> TraceBuilder:
    """Launches without any period."""
    built = trace()
    for number in random.Random(3).sample(range(1000), count):
        built.work(20).launch(name=f"k{number}")
    return built


def test_a_whole_span_is_no_evidence_for_a_gain_whether_asked_for_or_not() -> None:
    assert why_unknown(profile(unlike(60))) == "no_step"
    assert profile(unlike(60)).value("launches_per_step") == 60
    assert why_unknown(profile(loop_trace(6, step), step_from="none")) == "whole_span"
    assert why_unknown(profile(loop_trace(6, step))) is None


def test_graphs_of_a_whole_span_are_told_and_decide_nothing() -> None:
    read = profile(unlike(8).graph([(f"g{k}", 5) for k in range(90)]))
    assert why_unknown(read) == "no_step"
    (told,) = (found.title for found in read.findings if found.code == "LS008")
    assert told.startswith(
        "92 % of the kernels in the trace already run inside CUDA graphs (1 graph"
    )


@pytest.mark.parametrize(
    ("launches", "reason"), [(1, "few_launches"), (4, "few_launches"), (5, None)]
)
def test_a_step_of_a_few_launches_has_nothing_to_replay(launches: int, reason: str | None) -> None:
    def body(builder: TraceBuilder) -> None:
        for _ in range(launches):
            builder.op("aten::mul").work(400).launch()

    assert why_unknown(profile(loop_trace(6, body))) == reason


def test_each_wait_in_a_step_ends_a_graph() -> None:
    def body(builder: TraceBuilder) -> None:
        for _ in range(3):
            builder.op("aten::mul").work(400).launch().launch().launch().launch().sync()

    assert why_unknown(profile(loop_trace(6, body))) == "few_between_waits"


@pytest.mark.parametrize(("call", "reason"), [("cudaStreamBeginCapture", "graph_capture"),
                                              ("hipStreamBeginCapture_spt", "graph_capture"),
                                              ("cudaMalloc", "work_lost")])  # fmt: skip
def test_launches_without_device_work_give_no_verdict(call: str, reason: str) -> None:
    def captured(builder: TraceBuilder) -> None:
        step(builder)
        builder.record(api=call)
        for _ in range(20):
            builder.record(api="cudaLaunchKernel")  # the call alone

    assert why_unknown(profile(loop_trace(6, captured))) == reason


def test_a_capture_outside_the_steps_that_count_takes_no_verdict() -> None:
    built = trace().record(api="cudaStreamBeginCapture")
    for _ in range(30):
        built.record(api="cudaLaunchKernel")
    for _ in range(6):
        step(built.step())
    assert why_unknown(profile(built)) is None


def test_a_file_with_many_damaged_events_gives_no_verdict() -> None:
    built = loop_trace(6, step).end()
    for event in built.events[::30]:
        event["dur"] = None
    assert why_unknown(profile(built)) == "file_damaged"


def marked(count: int, body: Callable[[TraceBuilder, int], object]) -> TraceBuilder:
    """Steps whose bodies get their number; the first counts for nothing."""
    built = trace()
    for number in range(count):
        body(built.step(), number)
    return built.end()


def removable(read: Profile) -> float:
    return known(read.value("removable_pct"))


def test_idle_time_before_queued_work_stays_in_a_replay() -> None:
    """As behind a collective, or a stream that is not in the trace."""

    def stalled(builder: TraceBuilder, _: int) -> None:
        step(builder)
        builder.launch(delay_us=20_000).work(20_000)

    read = profile(marked(6, stalled))
    assert known(read.value("dispatch_gap_ms")) == pytest.approx(20, rel=0.01)
    assert known(read.value("launch_overhead_ms")) < 0.5
    assert known(read.value("predicted_replay_ms")) == pytest.approx(20.1, rel=0.01)
    assert 0 < removable(read) < 5


@pytest.mark.parametrize("inside", [True, False])
def test_a_pause_in_every_iteration_stays_in_a_replay(inside: bool) -> None:
    def pausing(builder: TraceBuilder, _: int) -> None:
        step(builder)
        (builder if inside else builder.end()).work(20_000)
        if inside:
            builder.launch()

    read = profile(marked(6, pausing))
    assert known(read.value("unattributed_ms")) == pytest.approx(20, rel=0.01)
    assert 0 < removable(read) < 5
    assert verdict(read).recommendation == "stay_eager"


def with_gap_of(host_us: float) -> TraceBuilder:
    def busy(builder: TraceBuilder, _: int) -> None:
        builder.op("aten::mul").work(host_us)
        for _ in range(40):
            builder.work(16).launch(kernel_us=20)

    return marked(9, busy)


def verdict_with_gaps_of(host_us: float) -> tuple[str, float, float]:
    read = profile(with_gap_of(host_us))
    share = read.metrics["removable_pct"]
    return verdict(read).recommendation, known(share.low), known(share.high)


def test_between_adopt_and_stay_eager_lie_gaps_of_which_nobody_knows_what_they_are() -> None:
    lengths = (300, 400, 500, 900, 1100, 1900, 2100, 4000, 6000, 9800, 11_000, 20_000)
    found = [verdict_with_gaps_of(length) for length in lengths]
    order = ("adopt", "inconclusive", "stay_eager")
    places = [order.index(given) for given, _, _ in found]
    assert places == sorted(places)
    assert set(places) == {0, 1, 2}
    below, above = verdict_with_gaps_of(1999), verdict_with_gaps_of(2001)
    assert below[0] == above[0] == "inconclusive"
    assert below[1:] == pytest.approx(above[1:], abs=0.2)


def between_operators(host_us: float) -> TraceBuilder:
    """Steps of 40 operators that each launch a kernel, with Python between them."""
    built = trace()
    for _ in range(9):
        built.step()
        for _ in range(40):
            built.work(host_us).inside("aten::mul", lambda b: b.work(15).launch(kernel_us=3))
    return built.end()


def test_python_between_operators_that_may_have_to_stay_decides_nothing() -> None:
    read = profile(between_operators(250))
    assert verdict(read).recommendation == "inconclusive"
    assert "may or may not need what the host does between the operators" in verdict(read).headline


def test_little_python_between_operators_does_not_keep_a_graph_from_paying() -> None:
    read = profile(between_operators(10))
    assert verdict(read).recommendation == "adopt"
    assert known(read.facts.outside_idle_pct) == pytest.approx(20, abs=3)


@pytest.mark.parametrize(
    ("host_us", "wanted"), [(8, "adopt"), (30, "adopt"), (150, "inconclusive")]
)
def test_without_operators_little_host_time_is_that_of_launches(
    host_us: float, wanted: str
) -> None:
    """As in an export of Nsight Systems, of a program in any language."""

    def body(builder: TraceBuilder, _: int) -> None:
        for _ in range(60):
            builder.work(host_us).launch(kernel_us=3)

    read = profile(marked(8, body))
    assert verdict(read).recommendation == wanted
    if wanted == "inconclusive":
        assert "may not need what the host does between the launches" in verdict(read).headline


def test_the_python_of_an_optimizer_is_its_own() -> None:
    def body(builder: TraceBuilder, _: int) -> None:
        for _ in range(4):
            builder.inside("aten::mul", lambda b: b.work(5).launch(kernel_us=100))
        builder.optimizer(lambda b: [b.work(150).launch(kernel_us=4) for _ in range(6)])

    read = profile(marked(8, body))
    assert verdict(read).recommendation == "adopt"


def waiting(kernel_us: float, host_us: float, after_us: float = 0) -> TraceBuilder:
    """Steps of 100 launches that end with a synchronization, as `.item()` makes one, and time that
    the host takes between them."""
    built = trace()
    for _ in range(9):
        built.step()
        for _ in range(100):
            built.op("aten::mul").work(host_us).launch(kernel_us=kernel_us)
        built.sync().end().work(after_us)
    return built


@pytest.mark.parametrize("after_us", [900, 5000])
def test_what_a_step_without_its_synchronization_saves_is_no_gain_of_a_graph(
    after_us: float,
) -> None:
    read = profile(waiting(50, 2, after_us))
    assert removable(read) == pytest.approx(0, abs=5)
    assert known(read.metrics["removable_pct"].high) < 5
    assert verdict(read).recommendation == "stay_eager"


def test_a_late_host_is_replaced_in_a_step_that_waits() -> None:
    read = profile(waiting(4, 20))
    assert removable(read) > 50
    assert verdict(read).recommendation == "adopt"


@pytest.mark.parametrize("waits", [False, True])
def test_a_few_gaps_that_are_unlike_the_others_decide_nothing(waits: bool) -> None:
    """As of an environment that acts on what the model said, or of operators on the CPU."""

    def acting(builder: TraceBuilder, _: int) -> None:
        for _ in range(6):
            for _ in range(10):
                builder.work(8).launch(kernel_us=6)
            (builder.sync() if waits else builder).work(900)

    read = profile(marked(8, acting))
    assert verdict(read).recommendation == "inconclusive"
    assert "may or may not remove the longer gaps" in verdict(read).headline


def test_gaps_between_work_that_was_queued_long_before_decide_nothing() -> None:
    """As where a trace lacks every other kernel, or another process uses the GPU."""

    def half(builder: TraceBuilder, _: int) -> None:
        for number in range(200):
            builder.work(8).launch(kernel_us=3 if number % 2 else 40, name=f"k{number % 2}")

    built = marked(8, half)
    gone = {e["args"]["correlation"] for e in built.events if e["name"] == "k0"}
    built.events = [e for e in built.events if e["args"].get("correlation") not in gone]
    read = profile(built)
    assert verdict(read).recommendation == "inconclusive"


def test_a_thread_that_launches_nothing_makes_no_other_one_wait() -> None:
    def watched(builder: TraceBuilder, _: int) -> None:
        step(builder)
        builder.end()

    built = marked(8, watched)
    alone = profile(built)
    marks = [event for event in built.events if event["cat"] == "user_annotation"]
    for number, mark in enumerate(marks):
        built.events.append(
            {**mark, "cat": "cuda_runtime", "name": "cudaEventSynchronize", "tid": 777,
             "args": {"correlation": 10**6 + number}}
        )  # fmt: skip
    beside = profile(built)
    assert removable(beside) == pytest.approx(removable(alone), abs=0.5)
    for key in ("launch_overhead_ms", "sync_wait_ms"):
        assert known(beside.value(key)) == pytest.approx(known(alone.value(key)), abs=0.01), key


def test_recording_that_makes_the_host_late_behind_data_widens_the_bounds() -> None:
    def body(builder: TraceBuilder, _: int) -> None:
        builder.data(3000)
        for _ in range(200):
            builder.op("aten::mul").work(12).launch(kernel_us=16)

    read = profile(marked(8, body))
    assert known(read.metrics["removable_pct"].low) < removable(read) - 10


def test_allocation_in_every_step_is_no_launch_overhead() -> None:
    read = profile(marked(6, lambda b, _: step(b.sync(3000, api="cudaMalloc"))))
    assert known(read.value("setup_ms")) == pytest.approx(3, rel=0.02)
    assert known(read.value("launch_overhead_ms")) < 1
    without = profile(marked(6, lambda b, _: step(b)))
    saved = known(without.value("iteration_ms")) * removable(without) / 100
    assert known(read.value("iteration_ms")) * removable(read) / 100 == pytest.approx(
        saved, abs=0.05
    )


@pytest.mark.parametrize("steps", [1, 8])
@pytest.mark.parametrize("place", [0, 30, 60])
def test_data_that_a_marked_step_loads_stays_in_a_replay(place: int, steps: int) -> None:
    """`prof.step()` at the end or at the begin of a loop's body marks the data loader, too."""

    def body(built: TraceBuilder, _: int) -> None:
        for number in range(60):
            if number == place:
                built.data(8000)
            built.op("aten::mul").work(15).launch(name=f"k{number}")
        built.sync()
        if place == 60:
            built.data(8000).work(1)

    read = profile(marked(steps, body))
    if place < 60 or steps > 1:  # nothing follows the data
        assert read.value("data_wait_ms") == pytest.approx(8, abs=0.1)
    assert known(read.value("replayed_iteration_ms")) > 8
    assert removable(read) < 12
    assert verdict(read).recommendation == "stay_eager"


def test_of_one_or_two_steps_with_a_pause_nobody_knows_what_is_usual() -> None:
    def set_up(builder: TraceBuilder, number: int) -> None:
        step(builder.work(20_000 if number == 1 else 20))

    read = profile(marked(3, set_up))
    assert why_unknown(read) == "pauses"
    assert "1 of 40 gaps holds most of the time" in verdict(read).headline


@pytest.mark.parametrize("count", [1, 2])
def test_of_one_or_two_steps_that_allocate_nobody_knows_whether_every_step_does(count: int) -> None:
    read = profile(marked(count + 1, lambda b, _: step(b.launch().sync(20_000, api="cudaMalloc"))))
    assert why_unknown(read) == "set_up"
    assert "calls that allocate memory" in verdict(read).headline
    assert (
        why_unknown(profile(marked(6, lambda b, _: step(b.sync(20_000, api="cudaMalloc"))))) is None
    )


@pytest.mark.parametrize("host_us", [3000, 20_000])
def test_a_long_time_before_the_first_launch_of_a_file_is_no_launch_overhead(
    host_us: float,
) -> None:
    late = profile(marked(1, lambda builder, _: step(builder.work(host_us))))
    soon = profile(marked(1, lambda builder, _: step(builder)))
    overhead = "launch_overhead_ms"
    assert known(late.value(overhead)) == pytest.approx(known(soon.value(overhead)), abs=0.05)
    assert removable(late) == pytest.approx(removable(soon), abs=3)


def test_device_work_of_unknown_origin_within_the_steps_gives_no_verdict() -> None:
    def unknown(builder: TraceBuilder, _: int) -> None:
        for _ in range(10):
            builder.work(20).launch(name="known").work(20).orphan(us=2)

    assert why_unknown(profile(marked(6, unknown))) == "launches_unknown"


def test_device_work_that_was_launched_before_the_recording_takes_no_verdict() -> None:
    built = trace()
    for _ in range(100):
        built.orphan(us=5).work(5)
    for _ in range(6):
        step(built.step())
    assert why_unknown(profile(built)) is None


@pytest.mark.parametrize(("from_us", "to_us"), [(0, 1500), (1500, 9999), (0, 9999)])
def test_calls_that_were_lost_while_steps_were_recorded_give_no_verdict(
    from_us: float, to_us: float
) -> None:
    built = marked(8, lambda builder, _: step(builder)).end()
    first = built.events[0]["ts"]
    built.events = [
        event for event in built.events
        if event["cat"] != "cuda_runtime" or not from_us <= event["ts"] - first < to_us
    ]  # fmt: skip
    if to_us - from_us == 9999:
        with pytest.raises(InputError, match="no launch call for its 160 GPU events"):
            profile(built)
        return
    read = profile(built)
    assert why_unknown(read) == "launches_unknown"
    assert read.value("launches_per_step") == 20  # of the steps that are whole
    assert not any("launched nothing" in note for note in read.notes)
    assert not any("recording began after" in note for note in read.notes)
    assert "of 160 GPU events" in verdict(read).headline


def sentences(read: Profile) -> str:
    findings = (text for found in read.findings for text in (found.title, found.advice))
    return " ".join((verdict(read).headline, *verdict(read).instructions, *findings))


def test_a_program_without_pytorch_is_not_told_about_it() -> None:
    def native(builder: TraceBuilder) -> None:
        for index in range(20):
            builder.work(20).launch(kernel_us=4, call_us=1, name=f"k{index % 5}")
        builder.sync()

    read = profile(loop_trace(6, native, lambda b: b.work(60)))
    assert read.facts.has_operators is False
    said = sentences(read)
    assert "for the host between launches" in said
    assert "cudaStreamBeginCapture" in said
    for word in ("Python", "torch", ".item()", "optimizer", "loss", "dispatcher"):
        assert word not in said
    built = loop_trace(6, lambda b: [b.op("aten::mul"), native(b)], lambda b: b.work(60))  # type: ignore[func-returns-value]
    assert "Python and the dispatcher between launches" in sentences(profile(built))


def test_a_busy_gpu_leaves_no_room_however_widely_the_steps_spread() -> None:
    def busy(builder: TraceBuilder, number: int) -> None:
        for _ in range(30):
            builder.launch(kernel_us=200 if number % 2 else 4000)

    read = profile(marked(9, busy))
    busy_ms, iteration_ms = (read.value(key) for key in ("iteration_busy_ms", "iteration_ms"))
    assert known(busy_ms) > 0.99 * known(iteration_ms)
    assert verdict(read).recommendation == "stay_eager"


@pytest.mark.parametrize(
    ("captured", "confidence"), [(None, "high"), (60, "high"), (400, "medium")]
)
def test_replays_with_far_fewer_kernels_than_their_capture_are_doubted(
    captured: int | None, confidence: str
) -> None:
    built = trace()
    if captured is not None:
        built.record(api="cudaStreamBeginCapture")
        for _ in range(captured):
            built.record(api="cudaLaunchKernel")
        built.record(api="cudaStreamEndCapture")
    for _ in range(6):
        built.step().graph([(f"g{index}", 4) for index in range(60)])
    read = profile(built.end())
    given = verdict(read)
    assert (given.recommendation, given.confidence) == ("already_graphed", confidence)
    told = [
        found.title for found in read.findings if found.code == "LS004" and "fewer" in found.title
    ]
    assert bool(told) == (confidence == "medium")


def test_iterations_whose_work_overlaps_are_never_busier_than_long() -> None:
    def ahead(builder: TraceBuilder) -> None:
        for _ in range(20):
            builder.launch(kernel_us=100)
        for _ in range(4):
            builder.launch(kernel_us=700, stream=14)  # runs beside the next iteration

    read = profile(loop_trace(8, ahead))
    assert known(read.value("iteration_busy_ms")) <= known(read.value("iteration_ms"))
    assert verdict(read).recommendation == "stay_eager"


def test_the_cost_of_recording_is_subtracted_and_noted() -> None:
    built = loop_trace(6, step)
    read = profile(built)
    # 40 recorded events of 2.2 us each, all of them while the GPU waited.
    taken_off = traced_iteration_ms(built.trace()) - known(read.value("iteration_ms"))
    assert taken_off == pytest.approx(40 * 2.2e-3, rel=0.05)
    (note,) = (note for note in read.notes if "2.2 us were subtracted" in note)
    assert "at most 55 % of the time in which it waited for them" in note


@pytest.mark.parametrize(("category", "name"), [("cpu_op", "aten::copy_"),
                                                ("cuda_runtime", "cudaEventQuery")])  # fmt: skip
def test_threads_that_launch_nothing_take_no_time_from_the_loop(category: str, name: str) -> None:
    alone, beside = loop_trace(8, step).end(), loop_trace(8, step).end()
    begin = beside.events[0]["ts"]
    while begin < beside.host:
        beside.host -= 5
        beside.inside(name, lambda built: None, tid=99, category=category)
    assert profile(beside).value("iteration_ms") == profile(alone).value("iteration_ms")
    assert removable(profile(beside)) == removable(profile(alone))


def test_the_threads_of_the_backward_are_part_of_the_loop() -> None:
    def training(builder: TraceBuilder) -> None:
        for tid in (403, 404):
            for _ in range(10):
                builder.inside("aten::mul", lambda b: b.work(20), tid=tid)
                builder.launch(kernel_us=4, tid=tid)

    built = loop_trace(6, training)
    taken_off = traced_iteration_ms(built.trace()) - known(profile(built).value("iteration_ms"))
    assert taken_off == pytest.approx(40 * 2.2e-3, rel=0.05)


def test_a_trace_without_device_work_is_an_error() -> None:
    with pytest.raises(InputError, match="no device work"):
        profile(trace().step().sync().end())


def test_steps_without_device_work_are_an_error() -> None:
    built = loop_trace(3, lambda builder: builder.work(100))
    with pytest.raises(InputError, match="launched no work"):
        profile(built.work(50).launch())


def test_a_whole_graph_of_nsys_is_busy_and_already_graphed(tmp_path: Path) -> None:
    built = nsys()
    for index in range(6):
        built.range(f"step#{index}").graph([50, 60, 70], nodes=False).work(200)
    path = built.write(tmp_path / "report.sqlite")
    read = advise(profile_of_trace(read_trace(path), path.name, step_range="step#"))
    assert read.value("gpu_busy_ms") == pytest.approx(0.18)
    assert verdict(read).recommendation == "already_graphed"


def test_of_two_processes_one_is_reported_and_both_are_noted(tmp_path: Path) -> None:
    built = nsys()
    for pid in (5, 6):
        built.process(pid, pid - 5)
        for _ in range(8):
            built.launch(name="a").launch(name="b").launch(name="c").work(40)
    path = built.write(tmp_path / "report.sqlite")
    read = profile_of_trace(read_trace(path), path.name)
    assert read.value("launches_per_step") == 3
    assert any("2 processes" in note and "process 5" in note for note in read.notes)


def test_idle_time_that_no_launch_ended_has_no_cause_and_gives_no_verdict() -> None:
    built = trace()
    for _ in range(20):
        built.orphan(us=5).work(50)
    found = profile(built, step_from="none")
    assert found.value("launch_overhead_ms") == 0
    assert found.value("unattributed_ms") == pytest.approx(19 * 0.045)
    assert found.value("removable_pct") is None
    assert verdict(found).recommendation == "inconclusive"


def test_a_kernel_before_its_launch_is_noted() -> None:
    built = loop_trace(5, lambda b: b.work(20).launch(delay_us=-3))
    (said,) = (note for note in profile(built).notes if "clocks" in note)
    assert said.startswith("5 launches reached the GPU up to 3 us before the call")
    assert not any("clocks" in note for note in profile(loop_trace(5, lambda b: b.launch())).notes)


@pytest.mark.parametrize("us", [-300, 0, 300, 5e9])
def test_clocks_of_host_and_gpu_that_disagree_give_no_verdict(us: float) -> None:
    built = loop_trace(8, step)
    built.memcpy(name="Memcpy DtoH (Device -> Pageable)", blocking=True).end()
    for event in built.events:
        if event.get("cat") in ("kernel", "gpu_memcpy"):
            event["ts"] += us
    assert why_unknown(profile(built)) == ("clocks_disagree" if us else None)


def test_a_copy_to_the_device_may_end_after_its_call() -> None:
    built = loop_trace(8, step)
    built.memcpy(name="Memcpy HtoD (Pageable -> Device)", blocking=True).end()
    (copy,) = (event for event in built.events if event.get("cat") == "gpu_memcpy")
    copy["ts"] += 300
    assert why_unknown(profile(built)) is None


@pytest.mark.parametrize(("us", "reason"), [(0, "no_durations"), (0.05, "no_durations"), (1, None)])
def test_work_that_takes_no_time_gives_no_verdict(us: float, reason: str | None) -> None:
    built = loop_trace(8, step)
    for event in built.events:
        if event["cat"] == "kernel":
            event["dur"] = us
    read = profile(built)
    assert why_unknown(read) == reason
    if reason is not None:
        assert "160 of 160 GPU events have a duration" in verdict(read).headline


def test_launch_calls_that_take_no_time_leave_the_time_in_them_unknown() -> None:
    built = loop_trace(8, step)
    for event in built.events:
        if event["cat"] == "cuda_runtime":
            event["dur"] = 0
    read = profile(built)
    assert removable(read) > 15
    assert read.value("launch_share_pct") is None
    assert read.value("launch_call_ms") is None
    assert not any("Launch calls" in finding.title for finding in read.findings)
    assert any("no launch call has a duration" in note for note in read.notes)


@pytest.mark.parametrize(("other_us", "reason"), [(4, None), (40, "several_gpus")])
def test_a_process_that_works_on_two_gpus_gets_no_verdict_from_one_of_them(
    other_us: float, reason: str | None
) -> None:
    def on_two(builder: TraceBuilder) -> None:
        step(builder)
        builder.launch(kernel_us=other_us, name="other")

    built = loop_trace(8, on_two)
    for event in built.events:
        if event["name"] == "other":
            event["args"]["device"] = 1
    assert why_unknown(profile(built)) == reason


def instructions(built: TraceBuilder) -> tuple[str, ...]:
    given = verdict(profile(built))
    assert given.recommendation == "adopt"
    return given.instructions


def test_a_trace_of_inference_is_one_of_a_forward() -> None:
    found = profile(loop_trace(6, step, lambda b: b.work(50))).step
    assert (found and found.scope) == "forward"


def test_a_trace_of_training_names_what_its_optimizer_needs_for_a_capture() -> None:
    def trained(builder: TraceBuilder) -> None:
        step(builder)
        builder.work(20).launch(tid=705)
        builder.optimizer(lambda optimizer: optimizer.work(20).launch())

    built = loop_trace(6, trained, lambda b: b.work(50))
    assert profile(built).facts.optimizer_classes == ("SGD",)
    assert "optimizer" not in " ".join(instructions(built))
    for event in built.events:
        event["name"] = event["name"].replace("#SGD", "#AdamW")
    assert instructions(built)[0].endswith("refuses the capture otherwise: AdamW capturable=True.")


def test_a_synchronization_in_the_step_of_a_trace_is_the_first_to_remove() -> None:
    steps = instructions(loop_trace(6, step, lambda b: b.sync()))
    assert "synchronization" not in " ".join(steps)

    def reads_its_loss(builder: TraceBuilder) -> None:
        step(builder)
        builder.sync()

    first, *_ = instructions(loop_trace(6, reads_its_loss, lambda b: b.work(50)))
    assert first.startswith("Move the operations that make the host wait out of the captured part")
    assert "the trace has 1 synchronization per step" in first
