"""What follows from a watched call: a kind of calls that can be captured, or the reason why not.
And the capture itself: how a failure is undone and explained."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from . import cuda
from .arguments import Tensor, address, is_plain
from .capture import GraphCapture, forget_node, has_node
from .lines import LineRecorder
from .optimizers import hyperparameters
from .program import Kind, Program
from .ranks import OtherRankError, Ranks, free_before_shutdown, is_distributed, several_ranks
from .reach import Reach
from .stats import WARMUP, EagerReason, GraphedError, RefusedError, line_of_name, raising_line
from .watch import Watch

if TYPE_CHECKING:
    from .step import GraphedStep

ALIKE = 2  # watched calls of one kind before its capture
_MOST_UNLIKE = 3  # calls of ranks unlike the one before: FSDP2 gathers more after an evaluation


class WatchedCall:
    """One call under observation, and what follows from it."""

    def __init__(
        self, step: GraphedStep[Any, Any], key: Any, kind: Kind, reach: Reach, leaves: list[Any]
    ):
        self._step, self._key, self._kind, self._reach = step, key, kind, reach
        guard = kind.guard
        bound = [(space.get(key), label) for space, key, label in guard.bound]
        self._bound = {address(old): label for old, label in bound if isinstance(old, Tensor)}
        self._gradients = kind.gradients.now()
        self._hypers = hyperparameters(reach.optimizers)
        self._plain = [a for a in leaves if isinstance(a, Tensor) and not a.requires_grad]
        recorder = LineRecorder(step._code, step._codes)
        self._watch = Watch(leaves, step._codes, recorder, step.optimizers.outside)

    def run(self, args: Any, kwargs: Any) -> Any:
        step, watch = self._step, self._watch
        output = step._on_side(lambda: watch.watching()(step._function)(*args, **kwargs))
        step.lines = watch.recorder.records()
        if watch.communicates and step.ranks is None and several_ranks():
            step.reset()  # nobody has agreed on graphs from before
            step.ranks = Ranks(step._name, step._needed_warmup(), step._options.timeout_s)
            free_before_shutdown()
        # An optimizer that counts by itself stays outside from now on: that is no effect then.
        is_outside = bool(watch.counting - step.optimizers.counting)
        is_known = self._learn()
        if not (is_outside or self._rebinds() or self._has_effects()) and is_known:
            self._judge(output)
        return output

    def _learn(self) -> bool:
        """Whether the walk knew what the call has used."""
        step, watch = self._step, self._watch
        used = (*watch.modules.values(), *watch.optimizers.values(), *watch.scalers.values())
        fresh = {id(value): value for value in used if id(value) not in step._roots}
        reach = self._reach
        known = {id(o) for o in (*reach.optimizers, *reach.scalers)} | set(reach.modules)
        step._roots.update(fresh)
        step.optimizers.on_host |= watch.on_host
        step.optimizers.counting |= watch.counting
        unseen = fresh.keys() - known or fresh.keys() & watch.optimizers.keys()
        return not (watch.new_code or unseen)

    def _rebinds(self) -> bool:
        """Whether the call bound names to new tensors: the next guard leaves them out."""
        rebound = self._kind.guard.values.rebound()
        made = {(id(at), key): at for at, key, _, new in rebound if self._watch.made(new)}
        self._step._bound.update(made)
        return bool(made)

    def _has_effects(self) -> bool:
        """Whether the call did what a replay would lose. Once may be the making of something."""
        step, kind, effects = self._step, self._kind, self._watch.effects
        codes = [code for code, _ in step._codes]
        changed = kind.guard.difference()
        name = kind.guard.name_of(changed)
        now = hyperparameters(self._reach.optimizers)
        for hyper, value in self._hypers.items():
            if now.get(hyper, value) != value and hyper[0] not in step.optimizers.counting:
                changed, name = f"{hyper[2]} of an optimizer", hyper[2]
        if changed is not None:
            effects.setdefault(f"changes {changed}", line_of_name(codes, name))
        before, step._effects = step._effects, set(effects)
        for what, where in effects.items():
            reason = EagerReason("side_effect", f"the step {what}", where)
            if what in before:  # in each call
                step._give_up(reason)
                return True
            if what in kind.effects:
                step._counts.warn(reason)
                kind.refusal = reason
        if effects:
            kind.effects |= step._effects
            step._keep(self._key, kind)
        return bool(effects)

    def _judge(self, output: Any) -> None:
        """Note what the call did. The second of its kind decides whether the third is captured."""
        step, kind, watch, guard = self._step, self._kind, self._watch, self._kind.guard
        step._keep(self._key, kind)
        kind.gradients.see(self._gradients, watch.backward, watch.external.keys())
        kind.lines = {at: where for at, (_, where) in watch.external.items()}
        at_entry = {address(g) for g in self._gradients if g is not None}
        guarded = {address(t) for t in guard.tensors} | at_entry
        # FSDP gives the memory of whole parameters back; a graph has its own.
        unknown = {
            at: tensor for at, (tensor, _) in watch.external.items()
            if at not in guarded and address(tensor) == at
        }  # fmt: skip
        before = kind.signature, kind.outputs
        self._strangers = [at for at in unknown if at not in kind.external]
        kind.watched += 1
        kind.signature, kind.outputs = watch.signature, outputs_of(output)
        kind.external = unknown
        generators = (*step._generators, *watch.generators.values())
        step._generators = list({id(generator): generator for generator in generators}.values())
        if kind.watched < ALIKE:
            return
        if before[0] != watch.signature and is_distributed() and kind.unlike < _MOST_UNLIKE:
            kind.unlike += 1
            kind.watched -= 1
            return
        kind.refusal = next(self._reasons(output, *before), None)
        if kind.refusal is not None:
            step._counts.warn(kind.refusal)

    def _reasons(self, output: Any, signature: int, outputs: list[Any]) -> Iterator[Any]:
        """Why calls of this kind stay eager."""
        kind, watch = self._kind, self._watch
        if self._reach.compiled:
            text = (
                "it runs code of torch.compile, which nothing can watch; leave out one of the two"
            )
            yield EagerReason("compiled", text)
        for text, where in watch.blockers:
            yield EagerReason("blocker", text, where)
        yield from self._reasons_in(pytree.tree_leaves(output))
        if any(argument.requires_grad for argument in self._plain):
            yield EagerReason("argument", "it makes an argument require a gradient")
        for at, label in self._bound.items():
            if at in watch.arguments or at in watch.external:
                text = f"it reads {label} of the call before; make it an argument"
                yield EagerReason("external", text, watch.external.get(at, (0, None))[1])
        if outputs != kind.outputs:
            yield EagerReason("output", "it returns a Python value that changes; return a tensor")
        for at in self._strangers:
            where = watch.external[at][1]
            text = "it reads a tensor that is another one in each call; make it an argument"
            yield EagerReason("external", text, where)
        if signature != watch.signature:
            text = "its operations, or the numbers in them, change in calls that look alike"
            yield EagerReason("signature", text)
        if not watch.operations:
            yield EagerReason("no_gpu_work", "it runs no operation of torch")

    def _reasons_in(self, leaves: list[Any]) -> Iterator[EagerReason]:
        names = [space.get(key) for space, key, _ in self._kind.guard.bound]
        for leaf in (*leaves, *names):
            if not isinstance(leaf, Tensor):
                if leaf in names or not is_plain(leaf):
                    text = "it returns something that is no tensor and no plain value"
                    yield EagerReason("output", text)
            elif leaf.grad_fn is not None and not self._watch.frees:
                text = "a tensor that it returns or binds still needs a backward; detach() it"
                yield EagerReason("output", text)


def outputs_of(output: Any) -> list[Any]:
    """What two calls of one kind return alike: everything but the values of tensors."""
    leaves, spec = pytree.tree_flatten(output)
    described = [(leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return [spec, *described]


def record(
    step: GraphedStep[Any, Any], kind: Kind, leaves: list[Any], form: Any
) -> Program | EagerReason:
    """The graphs of a call, or the reason why this call is eager."""
    entry = kind.gradients.now()
    # Not those of DistributedDataParallel, which have its hooks.
    nodes = [] if is_distributed() else [p for p in kind.guard.parameters if has_node(p)]
    for parameter in nodes if step._forgets else ():
        forget_node(parameter)
    kind.form, kind.outside = step.optimizers.form, step.optimizers.outside
    kind.generators = step._generators
    # Graphs share memory if each replaces the gradients that another one may have left. A pool is
    # dead once all of its graphs are gone, so only a graph that is alive has one.
    makes = kind.gradients.makes
    pools = (p.pool for p in step._programs() if p.pool is not None and p.makes == makes)
    capture = GraphCapture(next(pools, None), step._generators)
    # Where parts run before the next one is captured, a failure has to be undone.
    saved = kind.save(kind.tensors() if kind.outside else ())
    program: Program | None = None
    confirm: Callable[[], None] = (lambda: None) if step.ranks is None else step.ranks.confirm
    try:
        program = Program(kind, leaves, capture, confirm)
        step._on_side(functools.partial(_run, step, kind, program, form))
        confirm()
    except BaseException as error:
        alone = None if step.ranks is None else step.ranks.tell(error)
        if not capture.repair(saved):
            text = f"CUDA is unusable after {step._name} could not be captured; set "
            raise GraphedError(f"{text}LAUNCHSCOPE_GRAPHED=0") from error
        for other in step._programs():
            if other.pool is capture.pool:
                other.pool = None  # a failed capture leaves it recording
        if program is not None:
            program.release()
        if alone is not None or not isinstance(error, Exception):
            raise (alone or error) from error
        return _reason_of(step, kind, error, bool(nodes))
    kind.gradients.captured(entry)
    if step.ranks is not None:
        kind.agreed = step.ranks.captured()
    return program


def _run(step: GraphedStep[Any, Any], kind: Kind, program: Program, form: Any) -> None:
    output = program.capture(step._function, form)
    if outputs_of(output) != kind.outputs:
        raise RefusedError("output", "it returns something else in each call")
    if not kind.outside and not kind.guard.holds():
        text = f"the capture changed {kind.guard.difference()}, which the warm-up did not"
        raise RefusedError("state_created", text)


def _reason_of(
    step: GraphedStep[Any, Any], kind: Kind, error: Exception, has_nodes: bool
) -> EagerReason:
    """Another form is tried, or the kind is refused."""
    chosen = step.optimizers
    moved = {(owner, number, "any") for owner, number, name in chosen.moving if name == "lr"}
    if isinstance(error, torch.cuda.OutOfMemoryError):
        cuda.gpu.collect()
        return step._give_up(EagerReason("memory", "the GPU has no room for its graphs"))
    if isinstance(error, RefusedError):
        kind.refusal = error.reason
    elif isinstance(error, OtherRankError):
        kind.refusal = EagerReason("ranks", str(error))
    elif moved - chosen.moving:
        # Not every form of an optimizer takes a learning rate that is a tensor.
        chosen.moving |= moved
        step.reset()
    elif has_nodes and not step._forgets:
        step._forgets = True
    else:
        text = f"the capture failed: {type(error).__name__}: {error}".splitlines()[0]
        kind.refusal = EagerReason("capture_failed", text, raising_line(error))
    return kind.refusal or WARMUP
