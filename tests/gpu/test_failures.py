"""A capture that fails, crashes or hangs is a result, and eager's figures are never lost."""

from __future__ import annotations

import pytest
import torch

from launchscope.model import SourceLine
from tests.gpu.conftest import ProfileScript, loop, recommends

pytestmark = pytest.mark.gpu

# Only a capture sees these: inspection finds no blocker in them.
FAILING = {
    "raises": ("if capturing(): raise RuntimeError('not while capturing')", "not while capturing"),
    "memory": ("if capturing(): big = torch.empty(10**13, device='cuda')", "OutOfMemory"),
    "aborts": ("if capturing(): os.abort()", "SIGABRT"),
    "segfaults": ("if capturing(): import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    "waits": (
        "if capturing(): import ctypes; ctypes.CDLL('libcudart.so.13').cudaDeviceSynchronize()",
        "captur",
    ),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_failed_capture_keeps_what_eager_gave(case: str, profile_script: ProfileScript) -> None:
    inside, reason = FAILING[case]
    ran = profile_script(loop(inside=inside))
    profile = ran.measured
    assert ran.code == 0, ran.stderr
    assert profile.replay.status == "failed"
    assert reason.lower() in ran.replay_reason.lower()
    assert ran.metric("iteration_ms") > 0
    assert ran.metric("launches_per_step") > 0
    assert ran.verdict.basis == "predicted"
    assert "Traceback" not in ran.stderr
    if case == "raises":
        assert profile.replay.where == SourceLine("script.py", 14)
        assert [scope.status for scope in profile.replay.scopes] == ["blocked", "blocked"]
        assert [note for note in profile.notes if "run again" in note] == []
        assert [blocker.where for blocker in profile.blockers] == [SourceLine("script.py", 14)]
        recommends(profile, "adopt_after_fixes", "stay_eager")


def test_a_capture_that_hangs_is_stopped_by_the_time_limit(
    profile_script: ProfileScript,
) -> None:
    ran = profile_script(loop(inside="if capturing(): time.sleep(600)"), "--timeout", "25")
    assert ran.code == 0
    assert ran.measured.replay.status == "failed"
    assert "time limit" in ran.replay_reason
    assert ran.metric("iteration_ms") > 0


def test_no_room_for_graph_and_eager_together_is_told(
    profile_script: ProfileScript,
) -> None:
    """The graph keeps its memory: eager's next step may find none."""
    over_half = torch.cuda.get_device_properties(0).total_memory * 57 // 100
    big = f"torch.empty({over_half}, dtype=torch.uint8, device='cuda')"
    source = loop(inside=f"big = {big}; del big")
    # Otherwise the allocator cuts small pieces off the large block, and eager alone has no room.
    setting = "os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'max_split_size_mb:512'"
    ran = profile_script(source.replace("import torch", f"{setting}\nimport torch", 1))
    assert ran.code == 0, ran.stderr
    assert ran.measured.replay.status == "failed", ran.stdout
    assert "memory" in ran.replay_reason.lower()
    assert ran.metric("iteration_ms") > 0


def test_the_scripts_own_exit_code_comes_through(profile_script: ProfileScript) -> None:
    ran = profile_script(loop(steps=4) + "\nsys.exit(7)\n")
    assert ran.code == 7
    assert "exit code 7" in ran.stderr


def test_too_few_steps_for_the_schedule_are_used_and_told(
    profile_script: ProfileScript,
) -> None:
    ran = profile_script(loop(steps=24))
    assert ran.code == 0, ran.stderr
    assert ran.metric("iteration_ms") > 0
    assert any("24 steps" in note for note in ran.measured.notes)


def test_a_script_with_its_own_profiler_is_told_so(profile_script: ProfileScript) -> None:
    source = loop().replace(
        "for step in range(",
        "profiler = torch.profiler.profile()\nprofiler.start()\nfor step in range(",
    )
    ran = profile_script(source)
    assert ran.code == 0, ran.stderr
    assert ran.metric("iteration_ms") > 0
    assert ran.measured.value("launch_api_ms") is None
    assert "profiler of its own" in ran.stdout


def test_loader_workers_with_pinned_memory_are_no_obstacle(
    profile_script: ProfileScript,
) -> None:
    ran = profile_script(
        """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        def main():
            data = TensorDataset(torch.randn(6400, 64), torch.randint(0, 10, (6400,)))
            loader = DataLoader(data, batch_size=32, num_workers=2, pin_memory=True)
            model = nn.Linear(64, 10).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()

        if __name__ == "__main__":
            main()
        """
    )
    assert ran.code == 0, ran.stderr
    assert ran.measured.replay.status == "measured", ran.measured.replay.reason


def test_work_on_the_legacy_stream_is_measured_on_it_and_not_replayed(
    profile_script: ProfileScript,
) -> None:
    inside = "with torch.cuda.stream(torch.cuda.default_stream()): z = x + 1"
    ran = profile_script(loop(inside=inside))
    assert ran.code == 0, ran.stderr
    assert ran.measured.replay.status == "skipped"
    assert "legacy default stream" in ran.replay_reason
    assert any("legacy default stream" in note for note in ran.measured.notes)
    assert ran.metric("iteration_ms") > 0
