"""One captured call of the step: graphs, and between them the optimizers that stay eager."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.optim import optimizer as hooks
from torch.utils import _pytree as pytree

from . import cuda
from .arguments import Tensor, address, clone, gradient_of, memory, unflatten
from .capture import GraphCapture, SavedState, scaler_state, set_scaler_state
from .guard import Gradients, Guard, identical
from .optimizers import Form, Optimizer
from .stats import UNSTABLE, EagerReason, RefusedError, line_of

_KEPT = object()


@dataclass(eq=False)
class Kind:
    """Calls with one key and one guard: watched, then refused or captured. All that they depend on
    and may change, beside the arguments."""

    guard: Guard
    gradients: Gradients
    form: Form
    watched: int = 0  # calls without an effect
    effects: set[str] = field(default_factory=set)  # of watched calls
    unlike: int = 0
    refusal: EagerReason | None = None
    program: Program | None = None
    agreed: str = "replay"  # the name of the program among ranks
    signature: int = 0  # of the operations of the last watched call
    outputs: list[Any] = field(default_factory=list)
    outside: list[Optimizer] = field(default_factory=list)  # their steps run between graphs
    generators: list[torch.Generator] = field(default_factory=list)
    # Of the last watched call: tensors that are neither arguments nor guarded, by address; and
    # where the memory at an address is used first.
    external: dict[int, Tensor] = field(default_factory=dict)
    lines: dict[int, str | None] = field(default_factory=dict)

    def holds(self) -> list[Any] | None:
        """The gradients that a replay needs to know, if a call now is of this kind."""
        if not self.guard.holds():
            return None
        now = self.gradients.now() if self.gradients.used else []
        if now and not self.gradients.hold(now):
            return None
        return [] if self.program is None else now  # an eager call must be free to free them

    def unlike_now(self) -> EagerReason:
        """Why a call with such arguments is not of this kind."""
        if (name := self.guard.difference()) is not None:
            return replace(UNSTABLE, message=f"{name} is different in every call")
        text = "a gradient that it adds to has other memory in every call; set it to None before"
        return EagerReason("gradients", text)

    def release(self) -> None:
        if self.program is not None:
            self.program.release()
            self.program = None

    def save(self, tensors: Iterable[Tensor]) -> SavedState:
        optimizers = (*self.guard.optimizers, *self.outside)
        tables = [vars(o) for o in optimizers] + self._tables()
        guard = self.guard
        return SavedState(guard.parameters, tables, guard.scalers, self.generators, tensors)

    def _tables(self) -> list[dict[Any, Any]]:
        optimizers = (*self.guard.optimizers, *self.outside)
        groups = [group for o in optimizers for group in o.param_groups]
        return [t for o in optimizers for t in (o.state, *o.state.values())] + groups

    def optimizer_tensors(self) -> list[Tensor]:
        return [t for table in self._tables() for t in table.values() if isinstance(t, Tensor)]

    def tensors(self) -> list[Tensor]:
        """All tensors that the step may change."""
        gradients = [g for g in self.gradients.now() if g is not None]
        held = [*self.guard.tensors, *self.external.values(), *self.optimizer_tensors()]
        return [*held, *self.form.tensors(), *gradients]


@dataclass
class _Part:
    """A graph, where it leaves gradients and scalers, and maybe a call that stays eager."""

    graph: Any
    gradients: list[Any]  # _KEPT where it makes no new one
    scalers: list[tuple[Any, dict[int, dict[str, Any]]]]
    then: Callable[[], Any] | None = None


class Program:
    def __init__(self, kind: Kind, leaves: list[Any], capture: GraphCapture, confirm: Any):
        self.kind = kind
        self.pool: Any = capture.pool
        self.makes = kind.gradients.makes
        self.memory = 0  # bytes that its graphs have added to the pool
        self.replays = self.last_check = 0  # calls that were replayed
        self.next_check = 1
        self.parts: list[_Part] = []
        self._capture, self._confirm = capture, confirm
        self._at_start: tuple[list[Any], Any] = [], ()  # gradients, scalers
        self._interrupted: list[bool] = []  # by steps of optimizers, which may contain others
        self._leaves = list(leaves)
        self._targets: list[tuple[int, Tensor]] = []
        self._copy_arguments()
        kind.form.refresh()
        counts = kind.form.on_device
        self._before = None if counts is None else counts.clone()
        self._increments = torch.zeros_like(kind.form.on_host)

    def _copy_arguments(self) -> None:
        copies: dict[int, Tensor] = {}
        for index, leaf in enumerate(self._leaves):
            if isinstance(leaf, Tensor):
                self._leaves[index] = copy = copies.setdefault(id(leaf), clone(leaf))
                self._targets.append((index, copy))

    def capture(self, function: Callable[..., Any], form: Any) -> Any:
        """Run the step's Python once, and return its output, which nothing has computed yet. Each
        part but the last is replayed as soon as it is there, because an eager call follows."""
        args, kwargs = unflatten(form, iter(self._leaves))
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._capture)
            # As in the calls that were watched: what cuDNN has found for a convolution, it knows in
            # the thread that searched, and a capture cannot search.
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(self.kind.form)
            self._intercept(stack)
            reserved = cuda.gpu.reserved()
            self._begin()
            output = function(*args, **kwargs)
            self._end(None)
            self.memory = cuda.gpu.reserved() - reserved
        self._keep_outputs(output)
        return output

    def _intercept(self, stack: contextlib.ExitStack) -> None:
        """Optimizers that stay eager end a part. What a GradScaler steps for them does, too."""
        if self.kind.outside:
            first: Any = hooks.register_optimizer_step_pre_hook(self._before_step)
            stack.enter_context(first).hooks_dict_ref().move_to_end(first.id, last=False)
            stack.enter_context(hooks.register_optimizer_step_post_hook(lambda *_: self._resume()))
            for scaler in self.kind.guard.scalers:
                for name in ("step", "update"):
                    _around(stack, scaler, name, self._run_outside)

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        is_outside = optimizer in self.kind.outside
        self._interrupt(functools.partial(type(optimizer).step, *args, **kwargs), is_outside)

    def _run_outside(self, run: Any, *args: Any, **kwargs: Any) -> Any:
        self._interrupt(functools.partial(run, *args, **kwargs))
        result = run(*args, **kwargs)
        self._resume()
        return result

    def _interrupt(self, then: Callable[[], Any], is_outside: bool = True) -> None:
        self._interrupted.append(is_outside and self._capture.recording)
        if self._interrupted[-1]:
            self._end(then)
            self.kind.form.__exit__()
            self._held = self._bound()

    def _resume(self) -> None:
        if not self._interrupted.pop():
            return
        if not all(map(operator.is_, self._bound(), self._held)):
            text = "a step() that stays outside of the graph binds a name to a new tensor"
            raise RefusedError("optimizer", text, line_of(sys._getframe(1)))
        self.kind.form.__enter__()
        self._begin()

    def _bound(self) -> list[Any]:
        """What the names hold that the step binds to new tensors."""
        return [space.get(key) for space, key, _ in self.kind.guard.bound]

    def _begin(self) -> None:
        scalers = self.kind.guard.scalers
        self._at_start = self.kind.gradients.now(), list(map(scaler_state, scalers))
        self._capture.begin()

    def _end(self, then: Callable[[], Any] | None) -> None:
        graph = self._capture.end()
        before, states = self._at_start
        now = self.kind.gradients.now()
        gradients = [_KEPT if g is b else g for g, b in zip(now, before)]
        scalers = [
            (scaler, kept)
            for scaler, old in zip(self.kind.guard.scalers, states)
            if not _same_leaves(kept := scaler_state(scaler), old)
        ]
        self.parts.append(_Part(graph, gradients, scalers, then))
        if then is not None:
            self._confirm()
            graph.replay()  # a capture runs nothing

    def _keep_outputs(self, output: Any) -> None:
        leaves, self._output_spec = pytree.tree_flatten(output)
        guard = self.kind.guard
        own = {id(t) for t in guard.tensors}
        indices = {id(copy): index for index, copy in self._targets}
        self._outputs = [
            (indices[id(leaf)],) if id(leaf) in indices  # an argument
            else leaf.detach() if isinstance(leaf, Tensor) and id(leaf) not in own
            else leaf
            for leaf in leaves
        ]  # fmt: skip
        # A view of a parameter is the script's own memory: a copy would lose what is written to it.
        guarded = {address(t) for t in guard.tensors} - {0}
        self._made = {
            id(o) for o in self._outputs if isinstance(o, Tensor) and address(o) not in guarded
        }
        self._names = [(space, key, space[key].detach()) for space, key, _ in guard.bound]

    def run_last(self) -> None:
        """The rest of the captured call's own work."""
        self.parts[-1].graph.replay()
        form = self.kind.form
        if self._before is not None and form.on_device is not None:
            self._increments = (form.on_device - self._before).to("cpu")
            form.count(self._increments)

    def replay(self, leaves: list[Any], current: list[Any], copied: bool) -> Any:
        """One step. `current` are the gradients that the parameters have now."""
        kind = self.kind
        for index, target in self._targets:
            target.copy_(leaves[index])
        kind.form.refresh()
        for number, kept in kind.gradients.carried.items():
            gradient = current[number]
            if gradient is not None and gradient is not kept:
                kept.copy_(memory(gradient).detach())
        parameters = kind.guard.parameters
        for part in self.parts:
            part.graph.replay()
            if not identical(current, part.gradients):
                for parameter, gradient in zip(parameters, part.gradients):
                    if gradient is not _KEPT:
                        parameter.grad = gradient
            for scaler, scales in part.scalers:
                set_scaler_state(scaler, scales)
            if part.then is not None:
                part.then()
                current = list(map(gradient_of, parameters))
        kind.form.count(self._increments)
        return self.outputs(leaves, copied)

    def outputs(self, leaves: list[Any], copied: bool) -> Any:
        """What the call returns: copies, the caller's own arguments, or the model's tensors. Names
        that the step binds get copies, too."""
        copies: dict[int, Tensor] = {}  # one of a tensor that has two names

        def copy(tensor: Tensor) -> Tensor:
            if (at := tensor.data_ptr() or id(tensor)) not in copies:
                copies[at] = clone(tensor)
            same = copies[at].shape == tensor.shape and copies[at].dtype == tensor.dtype
            return copies[at] if same else clone(tensor)

        for space, key, tensor in self._names:
            space[key] = copy(tensor) if copied else tensor
        values = [
            leaves[output[0]] if isinstance(output, tuple)
            else copy(output) if copied and id(output) in self._made
            else output
            for output in self._outputs
        ]  # fmt: skip
        return pytree.tree_unflatten(values, self._output_spec)

    def release(self) -> None:
        for part in self.parts:
            part.graph.reset()
        self.parts, self._outputs, self._names = [], [], []
        self.kind.gradients.carried = {}


def _same_leaves(one: Any, other: Any) -> bool:
    first, second = pytree.tree_leaves(one), pytree.tree_leaves(other)
    return len(first) == len(second) and all(map(operator.is_, first, second))


def _around(stack: contextlib.ExitStack, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Until the stack closes, calls of `owner.name` go through `around(original, ...)`."""
    original, own = getattr(owner, name), name in vars(owner)
    setattr(owner, name, functools.wraps(original)(functools.partial(around, original)))
    stack.callback(*((setattr, owner, name, original) if own else (delattr, owner, name)))
