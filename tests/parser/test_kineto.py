"""Reading Kineto traces, clean and dirty."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launchscope.errors import InputError
from launchscope.parser import columns as c
from launchscope.parser import read_trace
from launchscope.parser.launches import find_launches, synchronizations
from launchscope.parser.sources import Reading, sources
from launchscope.parser.trace import Damage
from tests.builders import TraceBuilder, trace
from tests.kineto_text import LAYOUTS, kineto_text


def one_step() -> TraceBuilder:
    return trace().step().op("aten::add").launch(kernel_us=3, delay_us=8).memset().end()


def written(tmp_path: Path, content: str | bytes, name: str = "t.json") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_the_kineto_source_is_found_without_a_list() -> None:
    assert [source.name for source in sources()] == ["kineto", "nsys"]


def test_tables_have_their_columns_and_integer_nanoseconds() -> None:
    read = one_step().trace()
    assert tuple(read.calls.columns) == c.CALL_COLUMNS
    assert tuple(read.activities.columns) == c.ACTIVITY_COLUMNS
    assert tuple(read.ranges.columns) == c.RANGE_COLUMNS
    assert tuple(read.ops.columns) == c.OP_COLUMNS
    kernel = read.activities.frame().iloc[0]
    assert (kernel[c.START], kernel[c.DUR]) == (1_000_008_000, 3_000)
    assert (kernel[c.DEVICE], kernel[c.STREAM], kernel[c.KIND]) == (0, 13, c.KERNEL)
    assert read.activities[c.START].dtype == "int64"
    assert read.device_name == "Imaginary GPU"
    assert not read.damage.any


def test_an_activity_gets_the_process_of_the_call_with_its_correlation() -> None:
    assert set(one_step().trace().activities[c.PID]) == {403}


@pytest.mark.parametrize("word", ["N/A", "NaN", "nan", "-Infinity", "inf"])
def test_bare_words_are_read_as_null_and_reported(tmp_path: Path, word: str) -> None:
    text = json.dumps(one_step().document()).replace('"cbid": 211', f'"cbid": {word}', 1)
    read = read_trace(written(tmp_path, text))
    assert len(read.calls) == 2
    assert any("bare words" in repair for repair in read.damage.repairs)


def test_integers_past_64_bits_do_not_harm_their_neighbours(tmp_path: Path) -> None:
    text = json.dumps(one_step().document())
    text = text.replace('"cbid": 211, "correlation": 1', f'"cbid": 1, "correlation": {2**63 + 5}')
    text = text.replace('"bytes": 16', f'"bytes": {2**70}')
    read = read_trace(written(tmp_path, text))
    assert list(read.calls[c.CORRELATION]) == [-1, 2]
    assert len(read.activities) == 2


def test_invalid_utf8_is_replaced_and_reported(tmp_path: Path) -> None:
    raw = (
        json.dumps(one_step().document()).encode().replace(b'"kernel", "pid"', b'"ker\xff", "pid"')
    )
    read = read_trace(written(tmp_path, raw))
    assert next(iter(read.activities[c.NAME])) == "ker�"
    assert read.damage.repairs == ("invalid UTF-8 replaced",)


def test_a_strange_event_costs_only_itself(tmp_path: Path) -> None:
    document = one_step().document()
    document["traceEvents"] += [
        {"ph": "X", "cat": "kernel", "name": "odd", "ts": 5, "dur": 1, "args": [1, 2]},
        {"ph": "X", "cat": "kernel", "name": "timeless", "dur": 1},
    ]
    read = read_trace(written(tmp_path, json.dumps(document)))
    assert len(read.activities) == 2
    assert read.damage.events_dropped == 2
    assert not read.damage.cut


@pytest.mark.parametrize(
    "strange", [{"ph": "C"}, {"ph": "X", "cat": "of a plugin"}, {"ph": "X", "cat": ["cpu_op"]}]
)
def test_events_of_no_known_category_cost_nothing_however_many_they_are(
    tmp_path: Path, strange: dict[str, Any]
) -> None:
    built = trace()
    for _ in range(40):
        built.step().op("aten::add").launch(kernel_us=3, delay_us=8).memset().end()
    document = built.document()
    clean = read_trace(written(tmp_path, json.dumps(document), "clean.json"))
    long = strange | {"name": "x" * 50_000, "ts": 5.0, "dur": 1.0}
    document["traceEvents"] = [e for event in document["traceEvents"] for e in (event, long)]
    read = read_trace(written(tmp_path, json.dumps(document)))
    assert not read.damage.any
    for table in ("calls", "activities", "ranges", "ops"):
        assert getattr(read, table).frame().equals(getattr(clean, table).frame())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_second_document_is_reported_and_the_first_one_read(
    tmp_path: Path, layout: str, pack: Callable[[bytes], bytes]
) -> None:
    document = one_step().document() | {"traceName": "x", "with_stack": 1}
    text = LAYOUTS[layout](document).encode()
    whole = read_trace(written(tmp_path, pack(text + b"\n")))
    assert not whole.damage.any
    read = read_trace(written(tmp_path, pack(text) + pack(text)))
    assert len(read.activities) == len(whole.activities)
    assert read.with_stack
    assert read.damage.repairs == ("another document follows the first one, and was not read",)
    assert read.damage.cut


def test_a_second_list_of_events_is_reported(tmp_path: Path) -> None:
    text = json.dumps(one_step().document()["traceEvents"])
    assert not read_trace(written(tmp_path, f"{text}\n")).damage.any
    assert read_trace(written(tmp_path, text + text)).damage.cut


@pytest.mark.parametrize("digits", [400, 5000])
def test_numbers_of_hundreds_of_digits_are_no_rank_and_no_time(tmp_path: Path, digits: int) -> None:
    number = "7" * digits
    text = json.dumps(one_step().document() | {"distributedInfo": {"rank": "R", "world_size": "R"}})
    text = text.replace('"R"', number).replace('"dur": 3,', f'"dur": {number},')
    read = read_trace(written(tmp_path, text))
    assert (read.rank, read.world_size) == (None, None)
    assert read.damage.any


def test_microsecond_integers_and_nanosecond_clocks(tmp_path: Path) -> None:
    def read(document: dict[str, Any]) -> tuple[int, int]:
        row = read_trace(written(tmp_path, json.dumps(document))).activities.frame().iloc[0]
        return int(row[c.START]), int(row[c.DUR])

    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "args": {}}
    head: dict[str, Any] = {"deviceProperties": []}
    micro = {**head, "traceEvents": [{**event, "ts": 1_700_000_000_000_001, "dur": 2}]}
    nano = {**head, "traceEvents": [{**event, "ts": 1_700_000_000_000_001_003, "dur": 2000}]}
    assert read(micro) == (1_700_000_000_000_001_000, 2000)
    assert read(nano) == (1_700_000_000_000_001_003, 2000)


def test_the_categories_of_older_pytorch_are_known(tmp_path: Path) -> None:
    """They have none for ranges, whose names are told by the sign that torch puts into them."""
    document = one_step().document()
    for name in ("ProfilerStep#3", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        event = {"ph": "X", "cat": "user_annotation", "name": name, "ts": 1, "dur": 9}
        document["traceEvents"].append(event | {"pid": 1, "tid": 1})
    today = read_trace(written(tmp_path, json.dumps(document)))
    old = {
        "cuda_runtime": "Runtime", "kernel": "Kernel", "gpu_memset": "Memset",
        "user_annotation": "Operator", "cpu_op": "Operator",
    }  # fmt: skip
    for event in document["traceEvents"]:
        event["cat"] = old.get(event["cat"], event["cat"])
    read = read_trace(written(tmp_path, json.dumps(document)))
    assert (len(read.calls), len(read.activities)) == (2, 2)
    assert read.ranges[c.NAME].texts == today.ranges[c.NAME].texts
    assert len(read.ranges) == len(today.ranges) >= 2


def two_processes(*, same_ids: bool) -> dict[str, Any]:
    """Processes 403 and 9 on devices 0 and 1, merged into one file."""
    document = trace().launch().launch().launch().document()
    twins = json.loads(json.dumps(document["traceEvents"]))
    for event in twins:
        if event["cat"] == "kernel":
            event["args"]["device"] = 1
        else:
            event["pid"] = 9
        event["args"]["correlation"] += 0 if same_ids else 2
    document["traceEvents"] += twins
    return document


def test_an_id_that_two_processes_used_goes_to_the_one_whose_device_it_is(tmp_path: Path) -> None:
    document = two_processes(same_ids=False)  # ids 1, 2, 3 and 3, 4, 5
    read = read_trace(written(tmp_path, json.dumps(document)))
    owner = {(row[c.DEVICE], row[c.PID]) for row in read.activities.frame().to_dict("records")}
    assert owner == {(0, 403), (1, 9)}
    assert read.damage.ambiguous_activities == 0


def test_ids_that_two_processes_used_throughout_join_neither_and_are_counted(
    tmp_path: Path,
) -> None:
    read = read_trace(written(tmp_path, json.dumps(two_processes(same_ids=True))))
    assert set(read.activities[c.PID]) == {-1}
    assert read.damage.ambiguous_activities == 6


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_reads_alike(tmp_path: Path, layout: str) -> None:
    built = trace().step().op("aten::add").launch(name='odd "}, {" name').memcpy().sync()
    document = built.op("torch::autograd::AccumulateGrad").end()
    plain = read_trace(written(tmp_path, json.dumps(document.document())))
    other = read_trace(written(tmp_path, LAYOUTS[layout](document.document()), "other.json"))
    for table in ("calls", "activities", "ranges", "ops", "gradients"):
        assert getattr(plain, table).frame().equals(getattr(other, table).frame()), table
    assert len(other.gradients) == 1
    assert other.device_name == plain.device_name == "Imaginary GPU"
    assert not other.damage.any


def test_one_event_of_a_strange_time_does_not_change_the_clock_of_the_others(
    tmp_path: Path,
) -> None:
    document = trace().launch().launch().launch().document()
    document["traceEvents"][1]["ts"] = 4e18
    read = read_trace(written(tmp_path, json.dumps(document)))
    assert list(read.activities[c.DUR]) == [3000, 3000]
    assert read.damage.events_dropped == 1


@pytest.mark.parametrize("duration", ["-5", "null", "N/A", '"long"', None])
def test_durations_that_are_negative_or_missing_are_counted(
    tmp_path: Path, duration: str | None
) -> None:
    text = kineto_text(trace().launch(kernel_us=3).launch(kernel_us=7).document())
    text = text.replace(', "dur": 7.000' if duration is None else '"dur": 7.000',
                        "" if duration is None else f'"dur": {duration}')  # fmt: skip
    text = text.replace(', "dur": 7' if duration is None else '"dur": 7,',
                        "" if duration is None else f'"dur": {duration},')  # fmt: skip
    read = read_trace(written(tmp_path, text))
    assert sorted(read.activities[c.DUR]) in ([0, 3000], [3000, 7000])
    assert read.damage.durations_repaired == (read.activities[c.DUR] == 0).sum() == 1


def test_the_files_of_amds_gpus_are_read(tmp_path: Path) -> None:
    built = trace().launch(api="hipLaunchKernel").sync(api="hipDeviceSynchronize")
    read = built.trace()
    found = find_launches(read)
    assert list(found.calls[c.NAME]) == ["hipLaunchKernel"]
    assert synchronizations(read, found)[c.COUNTED].sum() == 1


def test_rank_world_size_and_stacks_are_read_from_the_file(tmp_path: Path) -> None:
    document = {"distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
                "with_stack": 1, **one_step().document()}  # fmt: skip
    read = read_trace(written(tmp_path, kineto_text(document)))
    assert (read.rank, read.world_size, read.with_stack) == (3, 8, True)


def test_of_operators_only_the_time_is_kept_when_their_names_are_not_wanted(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, kineto_text(one_step().document()))
    read = read_trace(path, Reading(op_names=False))
    assert tuple(read.ops.columns) == c.OP_MARKS
    assert list(read.ops[c.START]) == list(read_trace(path).ops[c.START])


def test_gradients_of_parameters_are_found_whether_names_are_wanted_or_not(
    tmp_path: Path,
) -> None:
    built = one_step().op("torch::autograd::AccumulateGrad").work(1).op("aten::add").end()
    path = written(tmp_path, kineto_text(built.document()))
    for names in (True, False):
        read = read_trace(path, Reading(op_names=names))
        assert len(read.gradients) == 1
        assert set(read.gradients[c.START]) <= set(read.ops[c.START])


def test_more_than_fits_in_the_memory_allowed_is_refused_with_the_place(tmp_path: Path) -> None:
    built = trace()
    for _ in range(300):
        built.launch()
    path = written(tmp_path, kineto_text(built.document()))
    with pytest.raises(InputError, match=r"does not fit in the memory .* after .* of JSON"):
        read_trace(path, Reading(memory_bytes=50_000))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_events_that_only_begin_or_end_are_reported(tmp_path: Path, layout: str) -> None:
    document = one_step().document()
    for event in document["traceEvents"]:
        if event["cat"] == "user_annotation":
            event["ph"] = "B"
    read = read_trace(written(tmp_path, LAYOUTS[layout](document)))
    assert not len(read.ranges)
    assert read.damage.text == "1 event dropped"


def test_the_events_may_follow_long_tables(tmp_path: Path) -> None:
    text = json.dumps({"stackFrames": ["frame"] * 50_000, "traceEvents": one_step().events})
    assert len(read_trace(written(tmp_path, text)).calls) == 2


def test_damage_is_described_in_the_singular_and_the_plural() -> None:
    assert Damage(1, 1, 1).text == (
        "1 event dropped; 1 missing or negative duration taken as 0; 1 GPU event of unknown process"
    )
    assert Damage(1200, 2).text == "1,200 events dropped; 2 GPU events of unknown process"


def with_processes(built: TraceBuilder, pid: object, tid: object) -> TraceBuilder:
    for event in built.events:
        if event["cat"] != "kernel":
            event["pid"], event["tid"] = pid, tid
    return built


@pytest.mark.parametrize(
    ("pid", "number"), [("python3 123", 123), ("123", 123), ("0 (GPU)", 0), (77.0, 77)]
)
def test_processes_that_are_texts_have_the_number_in_them(
    tmp_path: Path, pid: object, number: int
) -> None:
    built = with_processes(trace().step().launch().launch().end(), pid, "thread 5 (main)")
    read = read_trace(built.write(tmp_path / "t.json"))
    assert set(read.calls[c.PID]) == {number}
    assert set(read.calls[c.TID]) == {5}
    assert find_launches(read).coverage_pct == 100.0


def test_processes_whose_texts_have_no_number_are_told_apart(tmp_path: Path) -> None:
    one = with_processes(trace().launch(), "Spans", "a").events
    other = with_processes(trace().launch().launch(), "CPU", "b").events
    read = read_trace(written(tmp_path, json.dumps({"traceEvents": one + other})))
    assert len(set(read.calls[c.PID])) == 2
    assert int(read.calls[c.PID].min()) >= 1 << 40


@pytest.mark.parametrize("layout", ["kineto", "compact"])
@pytest.mark.parametrize(
    "categories", [("xpu_runtime", "xpu_driver"), ("privateuse1_runtime", "privateuse1_driver")]
)
def test_traces_of_other_devices_are_read(
    tmp_path: Path, layout: str, categories: tuple[str, str]
) -> None:
    document = trace().step().launch().launch().sync(api="urQueueFinish").end().document()
    calls = [event for event in document["traceEvents"] if event["cat"] == "cuda_runtime"]
    for event, category in zip(calls, (*categories, categories[0])):
        event["cat"] = category
    read = read_trace(written(tmp_path, LAYOUTS[layout](document)))
    found = find_launches(read)
    assert (len(found.calls), found.coverage_pct) == (2, 100.0)
    assert len(synchronizations(read, found)) == 1


@pytest.mark.parametrize(
    ("process", "device"), [("Ascend Hardware", "an Ascend NPU"), ("/device:TPU:0", "a TPU")]
)
def test_a_trace_of_another_device_is_refused_by_its_name(
    tmp_path: Path, process: str, device: str
) -> None:
    name = {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": process}}
    task = {"ph": "X", "name": "Add", "pid": 2, "tid": 1, "ts": "1030.5", "dur": 2.0}
    with pytest.raises(InputError, match=f"is of {device}"):
        read_trace(written(tmp_path, json.dumps({"traceEvents": [name, task]})))


def test_times_may_be_strings(tmp_path: Path) -> None:
    document = one_step().document()
    numbers = read_trace(written(tmp_path, json.dumps(document)))
    for event in document["traceEvents"]:
        if "ts" in event:
            event["ts"] = str(event["ts"])
    strings = read_trace(written(tmp_path, json.dumps(document), "strings.json"))
    assert strings.damage == numbers.damage
    assert strings.activities["start_ns"].tolist() == numbers.activities["start_ns"].tolist()


def test_a_trace_of_mtia_is_refused_with_the_reason(tmp_path: Path) -> None:
    text = json.dumps(one_step().document()).replace('"kernel",', '"mtia_ccp_events",')
    text = text.replace('"gpu_memset"', '"mtia_ccp_events"')
    with pytest.raises(InputError, match="is of an MTIA device"):
        read_trace(written(tmp_path, text))


def test_times_before_zero_are_shifted(tmp_path: Path) -> None:
    built = one_step()
    usual = read_trace(built.write(tmp_path / "usual.json"))
    for event in built.events:
        event["ts"] -= 1_000_500
    early = read_trace(built.write(tmp_path / "early.json"))
    assert int(early.calls[c.START].min()) == 0
    for usually, found in ((usual.calls, early.calls), (usual.activities, early.activities)):
        assert list(found[c.END]) == [end - 1_000_000_000 for end in usually[c.END]]
