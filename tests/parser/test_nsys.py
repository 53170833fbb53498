"""Reading exports of Nsight Systems."""

from __future__ import annotations

import os
import sqlite3
import traceback
from contextlib import closing
from pathlib import Path

import pytest

from launchscope.errors import InputError
from launchscope.parser import columns as c
from launchscope.parser import read_trace
from launchscope.parser.launches import find_launches, synchronizations
from launchscope.parser.sources import Reading
from launchscope.parser.trace import Trace
from tests.nsys_builder import NsysBuilder, nsys


def read(tmp_path: Path, built: NsysBuilder, *without: str) -> Trace:
    return read_trace(built.write(tmp_path / "report.sqlite", without=without))


def test_tables_have_their_columns_and_nanoseconds(tmp_path: Path) -> None:
    found = read(tmp_path, nsys().launch(kernel_us=3, delay_us=8, name="gemm").memset())
    assert tuple(found.calls.columns) == c.CALL_COLUMNS
    assert tuple(found.activities.columns) == c.ACTIVITY_COLUMNS
    kernel = found.activities.frame().iloc[0]
    assert (kernel[c.NAME], kernel[c.START], kernel[c.DUR]) == ("gemm", 1_008_000, 3_000)
    assert (kernel[c.DEVICE], kernel[c.STREAM]) == (0, 7)
    assert list(found.calls[c.NAME]) == ["cudaLaunchKernel", "cudaMemsetAsync"]
    assert not found.damage.any


def test_an_export_may_lie_in_a_folder_with_any_name(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"a?b#c%41\n\xe9")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes no such name")
    assert list(read(folder, nsys().launch(name="gemm")).activities[c.NAME]) == ["gemm"]


def test_calls_and_kernels_are_joined_on_process_and_correlation(tmp_path: Path) -> None:
    built = nsys().process(1, 0).launch(name="one").launch(name="one")
    built.process(2, 1).launch(name="other")  # uses correlation id 1 again
    found = find_launches(read(tmp_path, built))
    assert len(found.calls) == 3
    caller = found.calls[c.PID][found.activities[c.LAUNCH]]
    assert (caller == found.activities[c.PID]).all()
    assert found.coverage_pct == 100.0


def test_a_graph_traced_by_node_is_one_launch_of_many_kernels(tmp_path: Path) -> None:
    found = find_launches(read(tmp_path, nsys().graph([2, 3, 4], nodes=True)))
    (row,) = found.calls.frame().to_dict("records")
    assert (row[c.KIND], row[c.KERNELS]) == (c.GRAPH, 3)


def test_a_graph_traced_as_a_whole_is_busy_time_and_a_graph_launch(tmp_path: Path) -> None:
    found = find_launches(read(tmp_path, nsys().launch().graph([2, 3, 4], nodes=False)))
    assert list(found.calls[c.KIND]) == [c.KERNEL, c.GRAPH]
    graph = found.activities[found.activities[c.KIND] == c.GRAPH]
    assert list(graph[c.DUR]) == [9000]
    assert found.coverage_pct == 100.0


def test_a_pageable_copy_is_a_synchronization_and_a_pinned_one_is_not(tmp_path: Path) -> None:
    trace = read(tmp_path, nsys().memcpy(source=0).launch().memcpy(source=1).launch())
    assert synchronizations(trace, find_launches(trace))[c.COUNTED].sum() == 1


def test_ranges_are_read_from_text_and_from_text_ids(tmp_path: Path) -> None:
    built = nsys().launch().span("step#0", 1000, 1010).span("step#1", 1010, 1020, by_id=True)
    built.span("mark", 1000, None).span("domain", 1000, 1001, kind=75)
    assert list(read(tmp_path, built).ranges[c.NAME]) == ["step#0", "step#1"]


def test_operators_that_emit_nvtx_wrote_are_no_ranges(tmp_path: Path) -> None:
    built = nsys().launch().span("aten::add_, seq = 3, op_id = 7", 1000, 1010)
    found = read(tmp_path, built)
    assert list(found.ops[c.NAME]) == ["aten::add_"]
    assert len(found.ranges) == 0


@pytest.mark.parametrize(
    "missing",
    [
        "StringIds",
        "NVTX_EVENTS",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_MEMCPY.srcKind",
        "CUPTI_ACTIVITY_KIND_KERNEL.graphNodeId",
        "CUPTI_ACTIVITY_KIND_KERNEL.shortName",
        "NVTX_EVENTS.textId",
    ],
)
def test_older_schemas_lack_tables_and_columns(tmp_path: Path, missing: str) -> None:
    built = nsys().range("step").launch(kernel_us=3).memcpy().end()
    found = find_launches(read(tmp_path, built, missing))
    assert (found.calls[c.KIND] == c.KERNEL).sum() == 1


def test_kernels_without_any_call_are_orphans(tmp_path: Path) -> None:
    found = find_launches(read(tmp_path, nsys().launch(), "CUPTI_ACTIVITY_KIND_RUNTIME"))
    assert len(found.calls) == 0
    assert found.coverage_pct == 0.0


def test_durations_that_are_negative_or_missing_are_counted(tmp_path: Path) -> None:
    built = nsys().launch().launch()
    built.rows["CUPTI_ACTIVITY_KIND_KERNEL"][0]["end"] = 5
    built.rows["CUPTI_ACTIVITY_KIND_KERNEL"][1]["end"] = None
    found = read(tmp_path, built)
    assert found.damage.durations_repaired == 2
    assert list(found.activities[c.DUR]) == [0, 0]


@pytest.mark.parametrize("shift_us", [1000.001, 1020, 900e6], ids=["one", "some", "all"])
def test_a_clock_that_starts_below_zero_is_shifted(tmp_path: Path, shift_us: float) -> None:
    def tables(built: NsysBuilder, name: str) -> list[list[object]]:
        built.range("step").launch().launch(kernel_us=30).memcpy().memset().sync()
        found = read_trace(built.graph([5, 6], nodes=False).write(tmp_path / name))
        assert not found.damage.any
        columns = (c.NAME, c.START, c.END)
        rows = (found.calls, found.activities, found.ranges)
        began = int(found.calls[c.START][0])
        assert began >= 0
        return [
            [*(each[name] if name == c.NAME else each[name] - began)]
            for each in rows
            for name in columns
        ]

    assert tables(nsys(1000 - shift_us), "shifted") == tables(nsys(1000), "as it was")


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE friends (name)")
    connection.close()
    with pytest.raises(InputError, match="no export of Nsight Systems"):
        read_trace(path)


def test_a_report_that_was_not_exported_gets_the_command(tmp_path: Path) -> None:
    path = tmp_path / "run; touch x.nsys-rep"
    path.write_bytes(b"whatever")
    with pytest.raises(InputError, match="Nsight Systems itself") as caught:
        read_trace(path)
    assert f"nsys export --type sqlite '{path}', then" in str(caught.value.hint)


@pytest.mark.parametrize("begin", ["BEGIN EXCLUSIVE", "PRAGMA journal_mode=WAL"])
def test_a_database_whose_newest_rows_are_in_a_journal_or_a_log_is_refused(
    tmp_path: Path, begin: str
) -> None:
    path = nsys().launch().write(tmp_path / "report.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute(begin)
        writer.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        with pytest.raises(InputError, match="newest rows are still in"):
            read_trace(path)


def test_a_corrupt_database_is_refused_or_its_damage_counted(tmp_path: Path) -> None:
    built = nsys()
    for _ in range(3000):
        built.launch()
    path = built.write(tmp_path / "report.sqlite")
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    path.write_bytes(content)
    try:
        message = read_trace(path).damage.text
    except InputError as error:
        message = str(error)
    assert "damaged" in message or "breaks off" in message


def test_reading_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = nsys().launch().write(tmp_path / "report.sqlite")
    path.chmod(0o444)
    before = path.read_bytes()
    read_trace(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.sqlite"]


def test_a_database_with_a_write_ahead_log_is_read_without_a_file_beside_it(tmp_path: Path) -> None:
    path = nsys().launch().write(tmp_path / "report.sqlite")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.sqlite"]
    assert len(read_trace(path).activities) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.sqlite"]


def test_a_table_without_times_is_refused(tmp_path: Path) -> None:
    built = nsys().launch()
    path = built.write(tmp_path / "x.sqlite", without=("CUPTI_ACTIVITY_KIND_KERNEL.end",))
    with pytest.raises(InputError, match="KERNEL has no column end"):
        read_trace(path)


def test_more_than_fits_in_the_memory_allowed_is_refused(tmp_path: Path) -> None:
    built = nsys()
    for _ in range(200):
        built.launch()
    path = built.write(tmp_path / "report.sqlite")
    with pytest.raises(InputError, match="does not fit"):
        read_trace(path, Reading(memory_bytes=10_000))


@pytest.mark.parametrize("value", ["seven", b"\0\xff", ""])
def test_a_table_with_a_value_that_is_no_number_breaks_off(tmp_path: Path, value: object) -> None:
    built = nsys().launch().launch()
    built.rows["CUPTI_ACTIVITY_KIND_KERNEL"][1]["start"] = value
    found = read(tmp_path, built)
    assert found.damage.cut
    assert "KERNEL breaks off" in found.damage.text


def test_what_is_no_time_is_dropped_and_counted(tmp_path: Path) -> None:
    built = nsys().launch().launch()
    built.rows["CUPTI_ACTIVITY_KIND_KERNEL"][0]["start"] = 2**63 - 1
    found = read(tmp_path, built)
    assert found.damage.events_dropped == 1
    assert int(found.activities[c.START].min()) > 1_000_000


def test_a_machine_whose_number_sets_the_sign_is_one_like_any_other(tmp_path: Path) -> None:
    built = nsys().launch().launch()
    for rows in built.rows.values():
        for row in rows:
            for name in ("globalPid", "globalTid"):
                if name in row:
                    row[name] -= 2**63
    found = find_launches(read(tmp_path, built))
    assert found.coverage_pct == 100.0
    assert int(found.calls[c.PID].min()) > 0


@pytest.mark.parametrize(
    "missing", ["CUPTI_ACTIVITY_KIND_KERNEL.globalPid", "CUPTI_ACTIVITY_KIND_RUNTIME.globalTid"]
)
def test_one_process_needs_no_number_to_be_joined(tmp_path: Path, missing: str) -> None:
    found = find_launches(read(tmp_path, nsys().range("step").launch().launch(), missing))
    assert found.coverage_pct == 100.0


def test_of_two_processes_without_numbers_none_is_joined(tmp_path: Path) -> None:
    built = nsys().launch().process(78, 1).launch()
    found = find_launches(read(tmp_path, built, "CUPTI_ACTIVITY_KIND_KERNEL.globalPid"))
    assert found.coverage_pct == 0.0


def test_what_sqlite_quotes_is_visible_in_the_whole_traceback(tmp_path: Path) -> None:
    path = tmp_path / "export.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        connection.execute('CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM "\x1b[2J"')
        connection.commit()
    with pytest.raises(InputError) as raised:
        read_trace(path)
    text = "".join(traceback.format_exception(raised.value))
    assert r"\x1b[2J" in text
    assert "\x1b" not in text
