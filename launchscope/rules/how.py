"""The concrete next step of a verdict: what to type into the script, in order."""

from __future__ import annotations

from launchscope.model import Profile, Recommendation
from launchscope.rules.headline import blocking_lines
from launchscope.rules.ls035_live_scheduler import scheduler_is_frozen
from launchscope.rules.wording import listed, plural, size_of

# NVIDIA's guide: 3 warm-up steps before a capture, 11 under DistributedDataParallel.
_WARMUP = 3
_DDP_WARMUP = 11


def how_to(profile: Profile, recommendation: Recommendation) -> str | None:
    """Numbered instructions with the capture pattern for this step; None when there is no work."""
    if recommendation in ("adopt", "adopt_bucketed"):
        return _numbered(_preparation(profile), _pattern(profile, recommendation))
    if recommendation in ("adopt_after_fixes", "unsafe"):
        return _numbered([*_mending(profile), *_preparation(profile)], _pattern(profile, "adopt"))
    if recommendation == "inconclusive" and profile.mode == "rehearsal":
        steps = [*_mending(profile), "Run the same command on a machine with a GPU."]
        return _numbered(steps, "")
    return None


def _numbered(steps: list[str], code: str) -> str:
    lines = [f"{i}. {step}" for i, step in enumerate(steps, 1)]
    return "\n".join(lines) + (f"\n\n{code}" if code else "")


def _mending(profile: Profile) -> list[str]:
    """What stands between this script and a correct capture."""
    steps = []
    if profile.blockers:
        steps.append(f"Mend {blocking_lines(profile)} (launchscope rules LS030).")
    if scheduler_is_frozen(profile):
        steps.append("Hold the learning rate in a tensor on the GPU (launchscope rules LS035).")
    if profile.replay.work.same is False:
        steps.append("Make eager and captured run the same kernels (launchscope rules LS032).")
    elif profile.replay.correct.status == "different" and not scheduler_is_frozen(profile):
        causes = profile.replay.correct.causes
        at = listed(list(dict.fromkeys(cause.where for cause in causes if cause.where)))
        what = f"Mend what the capture froze at {at}" if at else "Find what the capture froze"
        steps.append(f"{what} (launchscope rules LS033).")
    return steps


def _preparation(profile: Profile) -> list[str]:
    steps = []
    if profile.replay.changes:
        steps.append("Set what the capture was made with: " + "; ".join(profile.replay.changes))
    ddp = profile.environment.world_size > 1
    warm = _DDP_WARMUP if ddp else _WARMUP
    why = " (DDP needs them)" if ddp else ""
    steps.append(
        "Put the script on a side stream before its first forward pass"
        + (" and before DDP is constructed" if ddp else "")
        + f", and run at least {warm} steps eagerly{why}."
    )
    tensors, size = profile.facts.get("input_tensors"), profile.facts.get("input_bytes")
    if isinstance(tensors, int) and tensors:
        amount = f" ({size_of(size)})" if isinstance(size, int) and size else ""
        steps.append(
            f"Keep the {plural(tensors, 'input tensor')} of the step{amount} at fixed addresses "
            "and copy each batch into them."
        )
    else:
        steps.append("Keep the inputs of the step at fixed addresses and copy each batch in.")
    source = profile.step.source if profile.step is not None else None
    steps.append(
        f"Capture the step that begins at {source}, then replay it:"
        if source
        else "Capture the step, then replay it:"
    )
    return steps


def _pattern(profile: Profile, recommendation: Recommendation) -> str:
    if recommendation == "adopt_bucketed":
        return _BUCKETED
    scope = profile.replay.scope or (profile.step.scope if profile.step else "full_step")
    return {"forward": _FORWARD, "forward_backward": _FORWARD_BACKWARD}.get(scope, _FULL_STEP)


_FULL_STEP = """\
torch.cuda.set_stream(torch.cuda.Stream())   # first thing in the script
...                                          # the warm-up steps, as now
optimizer.zero_grad(set_to_none=True)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=torch.cuda.current_stream(),
                      capture_error_mode="thread_local"):
    loss = loss_fn(model(static_x), static_y)
    loss.backward()
    optimizer.step()
for x, y in loader:
    static_x.copy_(x, non_blocking=True)
    static_y.copy_(y, non_blocking=True)
    graph.replay()                           # loss holds this step's value"""

_FORWARD_BACKWARD = """\
# forward and backward in graphs, the optimizer step stays eager
model = torch.cuda.make_graphed_callables(model, (sample_x,))
for x, y in loader:
    optimizer.zero_grad(set_to_none=True)
    loss_fn(model(x), y).backward()
    optimizer.step()"""

_FORWARD = """\
torch.cuda.set_stream(torch.cuda.Stream())   # first thing in the script
...                                          # the warm-up calls, as now
graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(
    graph, stream=torch.cuda.current_stream()
):
    static_out = model(static_x)
for x in requests:
    static_x.copy_(x, non_blocking=True)
    graph.replay()                           # then copy static_out"""

_BUCKETED = """\
graphs = {}                                  # one graph per padded shape
pool = torch.cuda.graph_pool_handle()
def run(x):
    x = pad_to_bucket(x)                     # to one of a few fixed sizes
    if x.shape not in graphs:
        static_x = x.clone()
        ...                                  # warm up on static_x
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph, pool=pool, stream=torch.cuda.current_stream()
        ):
            static_out = step(static_x)
        graphs[x.shape] = graph, static_x, static_out
    graph, static_x, static_out = graphs[x.shape]
    static_x.copy_(x, non_blocking=True)
    graph.replay()
    return static_out                        # copy it before the next replay"""
