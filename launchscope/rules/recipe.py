"""The code block of a recipe: the step's own statements around a capture, ready to paste."""

from __future__ import annotations

import math
import textwrap

from launchscope.model import Profile, StepInput, StepSource
from launchscope.rules import graphedcallables
from launchscope.rules.optimizers import freezes_rate, prepared, writes_rate

__all__ = [
    "captured_scope", "generic", "moving", "optimizer_names", "place", "rounds",
    "specific", "step_code", "warmup",
]  # fmt: skip

# NVIDIA's guide: 3 warm-up steps before a capture, 11 under DistributedDataParallel.
WARMUP = 3
DDP_WARMUP = 11

# What the lines that adapt a batch may call.
_MODULES = ("copy", "dataclasses")

# A replay of another status has the scope that was tried, or none that means anything.
_REPLAYED = ("measured", "what_if")


def warmup(profile: Profile) -> int:
    """Eager steps before the capture."""
    return DDP_WARMUP if profile.environment.world_size > 1 else WARMUP


def step_code(profile: Profile) -> StepSource | None:
    """The person's own statements of the step, if they are known and lie in their own loop.

    One statement that holds a whole training step is a call of a library's loop.
    """
    source = profile.facts.step_source
    if source is None:
        return None
    trains = profile.step is not None and profile.step.scope == "full_step"
    inside_library = trains and "backward" not in source.code and ".step(" not in source.code
    return None if inside_library else source


def rounds(profile: Profile) -> int:
    """Rounds of the person's loop that make up one step, as where gradients are accumulated."""
    source = step_code(profile)
    again = source is not None and source.rounds
    return max(profile.step.period.count("backward"), 1) if again and profile.step else 1


def captured_scope(profile: Profile) -> str:
    """How much of the step a graph is to hold: what was replayed, else all of the step."""
    whole = profile.step.scope if profile.step is not None else "full_step"
    return profile.replay.scope or whole if profile.replay.status in _REPLAYED else whole


def place(source: StepSource) -> str:
    """The lines of the step: train.py:41-47."""
    first, last = source.first_line, source.last_line
    return f"{source.file}:{first}" + (f"-{last}" if last > first else "")


def moving(source: StepSource) -> list[StepInput]:
    """Inputs that change from step to step, one for each static tensor."""
    found = {i.static_name: i for i in source.inputs if not i.constant}
    return list(found.values())


def specific(profile: Profile, source: StepSource) -> str:
    """The loop with a captured step: warm-up, capture, copies, replay."""
    inputs, results = moving(source), ", ".join(source.results)
    lines = [f"import {name}" for name in _MODULES if f"{name}." in source.adapts]
    lines += ["torch.cuda.set_stream(torch.cuda.Stream())  # before the model is made", "..."]
    lines += prepared(profile, [(str(name), kind) for name, kind in source.optimizers])
    lines += [f"{entry.static_name} = {_buffer(entry)}" for entry in inputs]
    lines += source.gathers.splitlines()
    lines += ["", f"def captured_step():  # {place(source)}"]
    # A gradient from before would be added to.
    lines += [f"    {entry.static_name}.grad = None" for entry in inputs if entry.requires_grad]
    lines.append(textwrap.indent(source.static_code.rstrip(), "    "))
    if results:
        lines.append(f"    return {results}")
    call = f"{results} = captured_step()" if results else "captured_step()"
    lines += [
        "",
        "graph, steps_done = None, 0  # once, before all loops",
        source.loop or "while True:  # your loop",
    ]
    deeper = " " * source.depth
    body = [_copy(entry) for entry in inputs]
    read = any(signature.inputs for signature in profile.shapes.signatures)
    if read and not source.inputs:
        body = ["...  # copy the step's inputs to fixed addresses: no expression here gives them"]
    body += [
        f"...  # copy what the step reads of {name} to fixed addresses: it cannot be exchanged here"
        for name in source.unseen
    ]
    if source.adapts:
        kept = f"  # {', '.join(source.kept)}: as it is now" if source.kept else ""
        body += [f"if steps_done == 0:{kept}", textwrap.indent(source.adapts, "    ")]
    body += [
        f"if steps_done < {warmup(profile)}:",
        f"    {call}",
        "else:",
        "    if graph is None:",
        "        graph = torch.cuda.CUDAGraph()",
        "        with torch.cuda.graph(graph, stream=torch.cuda.current_stream(),",
        '                              capture_error_mode="thread_local"):',
        f"            {call}",
        "    graph.replay()",
        *source.behind.splitlines(),
        "steps_done += 1",
        "...  # the rest of the loop, as now",
    ]
    before = source.before.splitlines()
    if source.optimizers and freezes_rate(profile):
        before = writes_rate(source.before).splitlines()
    if not before and (source.loop is None or deeper):
        before = ["...  # what comes before the step, as now"]
    body = [*before, *(textwrap.indent(line, deeper) for line in body)]
    return "\n".join([*lines, *(textwrap.indent(line, "    ").rstrip() for line in body)])


def _buffer(entry: StepInput) -> str:
    """A tensor like the input, in the same order in memory: kernels are chosen by it."""
    shape, strides = tuple(entry.shape), tuple(entry.strides)
    made, more = f"empty({shape}", ", requires_grad=True" if entry.requires_grad else ""
    if strides and strides == _channels_last(shape):
        kind = "channels_last" if len(shape) == 4 else "channels_last_3d"
        more = f", memory_format=torch.{kind}{more}"
    elif strides:
        made = f"empty_strided({shape}, {strides}"
    return f'torch.{made}, dtype={entry.dtype}, device="cuda"{more})'


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in that order; none for a tensor that has none of it."""
    if len(shape) not in (4, 5):
        return ()
    sizes = (*shape[2:], shape[1])  # a channel is the nearest neighbour
    inner = [math.prod(sizes[place + 1 :]) for place in range(len(sizes))]
    return math.prod(sizes), 1, *inner[:-1]


def _copy(entry: StepInput) -> str:
    """Fills a static tensor; autograd takes no part in it."""
    grad = ".detach()" if entry.requires_grad else ""
    source = entry.copied_from
    return f"{entry.static_name}{grad}.copy_({source}{grad}, non_blocking=True)"


def generic(profile: Profile, recommendation: str) -> str:
    """The pattern for a step of this kind, where its statements are not known."""
    if recommendation == "adopt_bucketed":
        return _BUCKETED
    scope = captured_scope(profile)
    if scope == "forward":
        return _FORWARD
    names = optimizer_names(profile)
    if scope == "full_step" and rounds(profile) > 1:
        return _accumulated(rounds(profile), names)
    clears = [f"{name}.zero_grad(set_to_none=True)" for name in names]
    steps = [f"{name}.step()" for name in names]
    if scope == "forward_backward" and graphedcallables.refused(profile):
        steps = [f"    {line}" for line in steps]
        return "\n".join([_OPENING, *clears, _CAPTURE, _KEPT_GRADIENTS, _LOOP, *steps])
    if scope == "forward_backward":
        tail = [f"    {line}" for line in ("loss_fn(model(x), y).backward()", *steps)]
        return "\n".join(
            [
                _FORWARD_BACKWARD.format(samples=graphedcallables.samples(profile)),
                *(f"    {line}" for line in clears),
                *tail,
            ]
        )
    steps = steps or ["...                                      # your own update"]
    opening = [_OPENING]
    if freezes_rate(profile):
        stream, warm = _OPENING.splitlines()
        opening = [stream, _MADE, *prepared(profile, _named_optimizers(profile)), warm]
    return "\n".join([*opening, *clears, _CAPTURE, *(f"    {line}" for line in steps), _LOOP])


def _accumulated(times: int, names: list[str]) -> str:
    """The pattern for gradients that are added up over some rounds of the loop."""
    clears = [f"{name}.zero_grad(set_to_none=True)" for name in names]
    steps = [f"    {name}.step()" for name in names]
    return "\n".join(
        [
            _OPENING,
            f"rounds = [(static_x.clone(), static_y.clone()) for _ in range({times})]",
            *clears,
            _CAPTURE.splitlines()[0],
            *_CAPTURE.splitlines()[1:3],
            "    for static_x, static_y in rounds:",
            f"        loss = loss_fn(model(static_x), static_y) / {times}",
            "        loss.backward()",
            *steps,
            "for i, (x, y) in enumerate(loader):",
            f"    static_x, static_y = rounds[i % {times}]",
            "    static_x.copy_(x, non_blocking=True)",
            "    static_y.copy_(y, non_blocking=True)",
            f"    if i % {times} == {times - 1}:",
            "        graph.replay()                       # loss holds that of the last round",
        ]
    )


def _named_optimizers(profile: Profile) -> list[tuple[str, str]]:
    source = profile.facts.step_source
    if source is not None and source.optimizers:
        return [(str(name), kind) for name, kind in source.optimizers]
    return list(zip(optimizer_names(profile), profile.facts.optimizer_classes or ()))


def optimizer_names(profile: Profile) -> list[str]:
    """Variables of the optimizers, or stand-ins for them; none for a script without."""
    source = profile.facts.step_source
    if source is not None and source.optimizers:
        return [str(name) for name, _ in source.optimizers]
    classes = profile.facts.optimizer_classes
    if classes is None or len(classes) == 1:
        return ["optimizer"]
    return [f"optimizer_{number}" for number in range(1, len(classes) + 1)]


_OPENING = """\
torch.cuda.set_stream(torch.cuda.Stream())   # first thing in the script
...                                          # the warm-up steps, as now"""

_MADE = """\
...                                          # the model and the optimizer, as now"""

_CAPTURE = """\
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=torch.cuda.current_stream(),
                      capture_error_mode="thread_local"):
    loss = loss_fn(model(static_x), static_y)
    loss.backward()"""

_LOOP = """\
for x, y in loader:
    static_x.copy_(x, non_blocking=True)
    static_y.copy_(y, non_blocking=True)
    graph.replay()                           # loss holds this step's value"""

_KEPT_GRADIENTS = """\
# from here on no zero_grad(): each replay writes the gradients anew"""

_FORWARD_BACKWARD = """\
# forward and backward in graphs, the optimizer step stays eager
model = torch.cuda.make_graphed_callables(model, {samples})
for x, y in loader:"""

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
