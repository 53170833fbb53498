"""Why something was not measured, or means less than it seems to: a code with its details."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from launchscope.frozen import dataclass

# Why a step's source cannot be moved into a function of its own.
RefusalReason = Literal[
    "no_place",  # the run showed no call of a step in the person's own files
    "no_source",  # exec, a REPL, a notebook: there is no file to change
    "unreadable",  # not decodable, or not Python
    "changed",  # the file is not what ran: the calls are not on the lines where they ran
    "installed",  # the step is inside an installed package
    "outside_project",  # its file is not below the folder of the script's repository
    "two_files",  # the calls of the step are in different files
    "two_functions",  # or in different functions that no statement of one loop holds
    "no_loop",  # nothing repeats the statements of the step
    "leaves_step",  # return, break, continue, yield or await inside the step
    "scope",  # global, nonlocal, del or := of a name inside the step
    "host_read",  # the host reads a value (.item(), .cpu(), ...) that the rest of the step needs
    "host_work",  # a statement inside the step that must not be replayed and cannot be moved
    "shared_line",  # statements of the step and of the host stand on one line
    "branch_name",  # a name bound in only one branch is read afterwards
    "needs_gradient",  # the value of the backward is computed outside the step
    "changing_number",  # a number that is another one in each iteration, in the step's arithmetic
    "class_scope",  # the loop is in the body of a class
    "name_taken",
]
ReasonCode = Literal[
    "already_graphed",
    RefusalReason,
    # A changed script was not shown to be equal and faster.
    "original_failed",
    "patched_failed",
    "writes_outside",
    "no_training",
    "no_patch",
    "verdict_against",
    "too_few_steps",
    "too_few_timed",
    "unseeded_state",
    "unseeded_batches",
    "value_differs",
    "printed_differs",
    "graph_differs",
    "not_replayed",
    "not_faster",
    "not_verified_within",
    # No capture is tried.
    "legacy_stream",
    "begins_with_backward",
    "ops_change",
    "ops_change_beside_blockers",
    "callable_with_blockers",
    "compiled_with_blockers",
    "no_stub",
    "blocker_in_part",
    "no_such_part",
    "whole_step_captured",
    "larger_part_captured",
    "trace_only",
    "not_run",
    # A pass failed or was cut off.
    "error",
    "out_of_memory",
    "cuda_error",
    "state_too_large",
    "profiler_busy",
    "one_rank_only",
    "ranks_apart",
    "rank_cannot_capture",
    "another_rank_failed",
    "empty_graph",
    "stubs_change_the_step",
    "script_ended",
    "loop_differs",
    "no_call_to_replace",
    "not_captured",
    "callable_without_loop",
    "slow_steps",
    "hung",
    "time_limit",
    "process_died",
    "other_step",
    "unreadable_result",
    # An error of launchscope's own, and one of the script that launchscope may have caused.
    "launchscope_failed",
    "raised_in_pass",
    # What a replay was measured with.
    "blockers_stubbed",
    "blockers_skipped",
    # The result was not checked.
    "what_if_replay",
    "compiled_step",
    "script_ended_before_check",
    "nothing_to_compare",
    "few_compared",
    # A strategy failed, or its losses say little.
    "no_strategy",
    "no_graph_compiled",
    "script_compiles",
    "no_module_called",
    "no_gpu",
    "keyword_inputs",
    "blocking_lines_stubbed",
    "eager_loss_unknown",
    "adopted_at_another_step",
    "no_loss",
    "runs_differ",
    "loss_differs",
    "loss_not_finite",
    "constant_loss",
    # A point of a comparison was not measured.
    "interrupted",
    "run_failed",
    "script_out_of_memory",
    "no_gpu_work",
    "no_step_timed",
    "no_replay_measured",
    # The script is run once more.
    "legacy_stream_needed",
    "suspected_pass",
    "to_its_end",
    "pass_ended_process",
    "smaller_part",
    "another_rank",
    "fewer_steps",
    "optimizer_steps",
    "forward_steps",
    # The gain is unknown.
    "file_cut",
    "file_damaged",
    "launches_unknown",
    "graph_capture",
    "work_lost",
    "no_step",
    "whole_span",
    "few_launches",
    "pauses",
    "set_up",
    "waits_for_ranks",
    "several_gpus",
    "no_durations",
    "clocks_disagree",
    "trace_contradicts",
]


@dataclass(frozen=True)
class Reason:
    """`details` complete the sentence; no code decides on a text among them. Of an error they are
    `kind`, the name of its class, and `error`, its text."""

    code: ReasonCode
    details: Mapping[str, str | int | float] = field(default_factory=dict)
