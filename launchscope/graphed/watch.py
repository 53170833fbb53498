"""One eager call under observation: its Python, its operations, what they read and change."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import optimizer as hooks
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from . import cuda
from .arguments import Tensor, address, identity, is_plain, tensors_in
from .blockers import COPIES, effect, operation_blocker
from .lines import LineRecorder
from .optimizers import plain_values
from .ranks import DISTRIBUTED
from .reach import Codes
from .stats import in_torch, is_library, line_of, line_of_name

Optimizer = torch.optim.Optimizer
Blocker = tuple[str, str | None]  # the text, and the line

# Of what torch puts around the step() of every optimizer.
_STEP = torch.optim.Optimizer.profile_hook_step(lambda: None).__code__
# An import happens once and is no part of the step.
_IMPORT = getattr(importlib, "_bootstrap")._find_and_load.__code__  # noqa: B009 - it has no type


class Watch(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, arguments: Iterable[Any], codes: Codes, recorder: Any, outside: Any = ()):
        super().__init__()  # type: ignore[no-untyped-call]
        tensors = [a for a in arguments if isinstance(a, Tensor)]
        self.arguments = set(map(address, tensors))
        self.recorder: LineRecorder = recorder
        self._codes, self._outside = codes, outside  # optimizers that stay outside of the graph
        self._device = cuda.gpu.device()
        self._plain: list[Any] = []  # values of those optimizers at the beginning
        self._owners: list[Any] = []  # optimizers and scalers whose step runs; None in a closure
        self.new_code = False
        self._importing = 0
        self.effects: dict[str, str | None] = {}  # what it did, with its line
        self.blockers: list[Blocker] = []
        self.external: dict[int, tuple[Tensor, str | None]] = {}  # by address, the first use
        self.generators: dict[int, torch.Generator] = {}
        self.optimizers: dict[int, Optimizer] = {}
        self.on_host: set[int] = set()  # optimizers that compute on the host
        self.counting: set[int] = set()  # optimizers that change their own Python values
        self.scalers: dict[int, Any] = {}
        # Without one that the call made and dropped, such as a loss in a forward().
        self.modules: MutableMapping[int, torch.nn.Module] = WeakValueDictionary()
        self.backward = self.communicates = False
        self.frees = False  # its last backward leaves nothing for another one
        self.signature = 0  # of all operations with their plain arguments
        self.operations = 0
        self._made: set[int] = set()
        self._references: list[StorageWeakRef] = []  # so that no identity is used twice
        self._calls: dict[types.CodeType, Callable[[dict[str, Any]], None]] = {
            inspect.unwrap(torch.autograd.backward).__code__: self._on_backward,
            torch.autograd.grad.__code__: self._on_backward,
            # Its .item() is no blocker: an optimizer that needs it stays eager.
            torch.amp.GradScaler.step.__code__: lambda local: self._owners.append(local["self"]),
        }
        self._users: dict[types.CodeType, MutableMapping[int, Any]] = {
            torch.nn.Module._call_impl.__code__: self.modules,
            torch.amp.GradScaler.scale.__code__: self.scalers,
        }

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        before = host_random_states()
        previous = sys.getprofile()
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(cuda.no_collection())
                stack.enter_context(hooks.register_optimizer_step_pre_hook(self._before_step))
                stack.enter_context(hooks.register_optimizer_step_post_hook(self._after_step))
                # Compiled code would run eagerly under a dispatch mode, from then on. torch also
                # compiles by itself, in each call of torch.cond.
                stack.enter_context(torch.compiler.set_stance("force_eager"))
                # In this thread, whose Python is watched, and not in one of autograd's own.
                stack.enter_context(torch.autograd.set_multithreading_enabled(False))
                stack.enter_context(self)
                sys.setprofile(self._on_python)
                stack.enter_context(self.recorder.tracing())
                yield
        finally:
            sys.setprofile(previous)
        for name, now in host_random_states().items():
            if now != before.get(name, now):
                where = line_of_name((c for c, _ in self._codes), name.rpartition(".")[2])
                self.effects.setdefault(f"draws from {name}", where)

    def made(self, tensor: Tensor) -> bool:
        """Whether an operation of the call made it."""
        return identity(tensor) in self._made

    def _on_python(self, frame: types.FrameType, event: str, arg: Any) -> None:
        """Each call of a Python or a built-in function in this thread."""
        code = frame.f_code
        if code is _IMPORT and event in ("call", "return"):
            self._importing += 1 if event == "call" else -1
        elif self._importing:
            self.new_code = self.new_code or code.co_name == "<module>"
        elif event == "call":
            self._on_call(code, frame)
        elif event == "return" and code is torch.amp.GradScaler.step.__code__:
            self._owners.pop()
        elif event == "return" and code is _STEP and tensors_in(arg):
            if frame.f_locals["self"] in self._outside:
                text = "a step() that stays outside of the graph makes a tensor that others see"
                self.blockers.append((text, line_of(frame)))
        elif event == "c_call":
            self._on_builtin(frame, arg)

    def _on_call(self, code: types.CodeType, frame: types.FrameType) -> None:
        self.communicates = self.communicates or code.co_filename.startswith(DISTRIBUTED)
        if code in self._users:
            owner = frame.f_locals["self"]
            self._users[code][id(owner)] = owner
        elif code in self._calls:
            self._calls[code](frame.f_locals)
        elif not is_library(code.co_filename):
            self.recorder.note_call(code, frame.f_globals)
            if (code, code.co_filename) not in self._codes:
                self._codes[code, code.co_filename] = frame.f_globals
                self.new_code = True

    def _on_builtin(self, frame: types.FrameType, function: Any) -> None:
        name = getattr(function, "__name__", "")
        what = effect(function, name)
        if what is not None and not in_torch(frame):
            self.effects.setdefault(what, line_of(frame))

    @property
    def _owner(self) -> Any:
        return self._owners[-1] if self._owners else None

    def _block(self, text: str, where: str | None) -> None:
        self.blockers.append((text, where))
        self.recorder.count("host_reads")

    def _on_backward(self, local: dict[str, Any]) -> None:
        self.backward = True
        self.frees = not (local.get("retain_graph") or local.get("create_graph"))

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        self.optimizers[id(optimizer)] = optimizer
        self._plain.append(plain_values(optimizer))
        self._owners.append(optimizer)
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            return None
        self._closures = 0

        def watched() -> Any:
            self._closures += 1
            self._owners.append(None)
            try:
                return closure()
            finally:
                self._owners.pop()

        return (args[0], watched, *args[2:]), {k: v for k, v in kwargs.items() if k != "closure"}

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._owners.pop()
        if getattr(self, "_closures", 1) != 1:
            text = "an optimizer calls its closure more than once; compute the loss before step()"
            self.blockers.append((text, line_of(sys._getframe(1))))
        if self._plain.pop() != plain_values(optimizer):
            self.counting.add(id(optimizer))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            text = f"{func.name()} is an operator of torch that runs others unseen"
            self._block(text, line_of(sys._getframe(1)))
            return func(*args, **kwargs)
        leaves = pytree.tree_leaves((args, kwargs))
        inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        written = _written(func, args, kwargs) if func._schema.is_mutable else set()
        if self._owner is None:
            self._look_at(func, args, kwargs, leaves, inputs)
            if not self.arguments.isdisjoint(written):
                where = line_of(sys._getframe(1))
                self.effects.setdefault("writes into an argument", where)
        elif operation_blocker(func, args, kwargs, inputs) or self._reads_host(func, inputs):
            self.on_host.add(id(self._owner))
        result = func(*args, **kwargs)
        self.recorder.note_operation(written, inputs, tensors_in(result))
        known = set(map(identity, inputs))
        for tensor in tensors_in(result):
            storage = identity(tensor)
            if storage not in known and storage not in self._made:
                self._made.add(storage)
                if address(tensor):
                    self._references.append(StorageWeakRef(tensor.untyped_storage()))
        return result

    def _reads_host(self, func: Any, inputs: list[Tensor]) -> bool:
        on_host = (t for t in inputs if t.device.type != cuda.gpu.type)
        outside = any(address(t) and identity(t) not in self._made for t in on_host)
        return outside and func._schema.name not in COPIES

    def _look_at(
        self, func: Any, args: Any, kwargs: Any, leaves: list[Any], inputs: list[Tensor]
    ) -> None:
        name, where = func._schema.name, line_of(sys._getframe(1))
        self.operations += 1
        self._sign(func, leaves)
        self._find_blockers(func, args, kwargs, inputs, where)
        generator = kwargs.get("generator")
        if generator is not None and generator.device.type == cuda.gpu.type:
            self.generators[id(generator)] = generator
        for tensor in inputs:
            at = address(tensor)
            if at and identity(tensor) not in self._made and at not in self.arguments:
                self.external.setdefault(at, (tensor.detach(), where))
        if self._reads_host(func, inputs):
            text = f"a tensor in host memory is read ({name.removeprefix('aten::')}); move it once"
            self._block(f"{text} to the GPU", where)

    def _sign(self, func: Any, leaves: list[Any]) -> None:
        described = [
            (*leaf.shape, leaf.dtype) if isinstance(leaf, Tensor)
            else repr(leaf) if is_plain(leaf) else type(leaf)
            for leaf in leaves
        ]  # fmt: skip
        self.signature = hash((self.signature, str(func), *described))

    def _find_blockers(
        self, func: Any, args: Any, kwargs: Any, inputs: list[Tensor], where: str | None
    ) -> None:
        devices = {t.device.index for t in inputs if t.device.type == cuda.gpu.type}
        elsewhere = devices - {None, self._device}
        if elsewhere:
            text = f"it works on device {min(elsewhere)}, and the current device is another one"
            self.blockers.append((text, where))
        if problem := operation_blocker(func, args, kwargs, inputs):
            self._block(problem, where)


def _written(func: Any, args: Any, kwargs: Any) -> set[int]:
    """The addresses of what an operation writes to. Fused optimizers count no version."""
    named = zip((argument.name for argument in func._schema.arguments), args)
    given = {**dict(named), **kwargs}
    marks = {a.name: a.alias_info for a in func._schema.arguments if a.alias_info is not None}
    values = [given.get(name) for name, mark in marks.items() if mark.is_write]
    return {address(tensor) for tensor in tensors_in(values)}


def host_random_states() -> dict[str, Any]:
    states: dict[str, Any] = {"random": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None:
        _, keys, *rest = numpy.random.get_state()
        states["numpy.random"] = keys.tobytes(), rest
    states["torch on the CPU"] = bytes(cuda.gpu.host_random_state().to(torch.uint8).tolist())
    return states
