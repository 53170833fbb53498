"""Modes of torch that hand each op, or each call of a torch function, to a callback.

A callback gets the function, `run`, which calls it, and the arguments; it runs the call, or not,
and gives its result. The classes are made on demand, because the script imports torch and not we.
`sys._getframe(3)` in a callback of a function mode is the caller.

They go below every mode of the script. On top, a mode that the script leaves before we do would
take ours off the stack in place of its own.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from threading import get_ident
from types import FrameType, FunctionType
from typing import TypeAlias

from launchscope.runner.child.code_owner import is_ours, is_torch
from launchscope.runner.child.hooks.override_checks import Unseen, override_checks
from launchscope.runner.child.hooks.patching import is_replaced, put_in_place
from launchscope.runner.child.ops.rounding import ROUNDED, restore_rounding
from launchscope.runner.child.plain_values import loaded_torch
from launchscope.runner.child.torch_types import (
    Args,
    Function,
    Kwargs,
    Mode,
    Op,
    Tensor,
    Torch,
    Value,
)

_CACHE_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
# Functions of torch that drop the vectors of a decomposition.
_OF_VALUES_ONLY = {
    *("linalg_svdvals", "linalg_eigvalsh", "linalg_norm", "linalg_matrix_norm", "linalg_cond"),
    *("norm", "nuclear_norm"),
}
# Ops that multiply, or take a softmax, for one function of torch alone: autocast may have cast the
# arguments of that function.
_RUN_BY = {
    "aten::_euclidean_dist": "aten::cdist",
    "aten::_safe_softmax": "aten::scaled_dot_product_attention",
    "aten::_trilinear": "aten::bilinear",
}
_Callback: TypeAlias = Callable[[Function, Function, Args, Kwargs], Value]


class ForScriptError(Exception):
    """What a callback raises on purpose: the script cannot go on with its step."""


class OwnMode(Unseen):
    """A base of every mode of ours.

    An error of a callback's own stays here until the mode is left, and is raised there: the call
    runs, once, and no callback is asked any more.
    """

    error: Exception | None = None

    def _guarded(
        self,
        on_call: _Callback,
        func: Function,
        args: Args,
        kwargs: Kwargs,
        call: Function | None = None,
    ) -> Value:
        """What `on_call(func, run, args, kwargs)` gives, where `run` calls `func`, or `call` in its
        place."""
        call = call or func
        run = _Run(call)
        if self.error is None:
            try:
                return on_call(func, run, args, kwargs)
            except Exception as error:
                if error is run.error or isinstance(error, ForScriptError):
                    raise
                self.error = error
            finally:
                run.error = None  # it holds this frame, and with it the tensors of the script
        return run.result if run.done else call(*args, **kwargs)

    def take_error(self) -> Exception | None:
        error, self.error = self.error, None
        return error

    def _raise_own(self) -> None:
        if (error := self.take_error()) is not None:
            raise error


class _Run:
    """Calls a function, and keeps the last result or error of that."""

    def __init__(self, call: Function):
        self._call = call
        self.done = False
        self.result: Value = None
        self.error: Exception | None = None

    def __call__(self, *args: Value, **kwargs: Value) -> Value:
        try:
            self.result = self._call(*args, **kwargs)
        except Exception as error:
            self.error = error
            raise
        self.done = True
        return self.result


def dispatch_mode(on_op: _Callback) -> Mode:
    """A TorchDispatchMode; enter it as a context manager.

    In a callback neither function modes nor tensor subclasses of the script see a call. Compiled
    code runs eagerly meanwhile, and compiled again afterwards: torch would otherwise leave it eager
    for good, or raise an error with `fullgraph=True`.
    """
    return _mode_classes()[0](on_op)


def function_mode(on_call: _Callback) -> Mode:
    """A TorchFunctionMode; it also sees calls that dispatch no op."""
    return _mode_classes()[1](on_call)


@functools.cache
def _mode_classes() -> tuple[Value, ...]:
    torch = loaded_torch()
    with _no_cache_folder():
        # torch imports it for the first op in a mode, and raises an error if `Tensor.__new__` is
        # ours by then. An optimizer has imported it before; a script that only infers has not.
        # Where this fails, the script must not be what finds out.
        importlib.import_module("torch._dynamo")
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    dispatch_stack = _Stack(
        torch._C._len_torch_dispatch_stack,
        torch._C._get_dispatch_stack_at,
        lambda: torch._C._pop_torch_dispatch_stack(None),
        torch._C._push_on_torch_dispatch_stack,
    )
    function_stack = _Stack(
        torch._C._len_torch_function_stack,
        torch._C._get_function_stack_at,
        torch._C._pop_torch_function_stack,
        torch._C._push_on_torch_function_stack,
    )

    def new(kind: type, *args: Value, **kwargs: Value) -> Tensor:
        # Of what it makes, a mode would get a plain tensor first, which torch then refuses to
        # turn into one of the script's class.
        with contextlib.ExitStack() as undo:
            if kind is not torch.Tensor:
                undo.enter_context(dispatch_stack.without_ours())
            return torch._C.TensorBase.__new__(kind, *args, **kwargs)

    constructor = staticmethod(new)

    keys = torch._C.DispatchKey
    inference_mode = torch.autograd.grad_mode.inference_mode

    def modes_are_seen(seen: bool) -> None:
        for key in (keys.Python, keys.PythonTLSSnapshot):
            torch._C._dispatch_tls_set_dispatch_key_included(key, seen)

    def as_without_ours(original: Function) -> Function:
        """Around the two ends of `inference_mode`. It notes as it begins whether ops go to modes,
        and as it ends puts that back, although a mode of ours may have come or gone inside."""

        @functools.wraps(original)
        def called(*args: Value, **kwargs: Value) -> Value:
            modes = dispatch_stack.modes()
            of_script = [mode for mode in modes if not isinstance(mode, OwnMode)]
            if len(of_script) == len(modes):
                return original(*args, **kwargs)
            modes_are_seen(bool(of_script))
            try:
                return original(*args, **kwargs)
            finally:
                modes_are_seen(True)

        return called

    set_function_state = torch._C._set_torch_function_state
    skip_overrides = getattr(torch._C, "_set_skip_next_torch_function", None)  # newer versions

    def as_called(op: Op, state: Value) -> Function:
        """Calls the op, of which nobody is asked, so that what it runs in Python (an operator or a
        tensor of the script) calls functions of torch in this state, as it does without the mode.
        """

        def call(*args: Value, **kwargs: Value) -> Value:
            own_state = torch._C._get_torch_function_state()
            set_function_state(state)
            try:
                if skip_overrides is not None:
                    skip_overrides(True)
                    try:
                        return op(*args, **kwargs)
                    finally:
                        skip_overrides(False)  # else of an op that refuses its arguments
                with function_stack.empty():
                    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if is_tensor(leaf)]
                    if torch._C._has_torch_function(tensors):
                        set_function_state(own_state)
                    return op(*args, **kwargs)
            finally:
                set_function_state(own_state)

        return call

    def key_set(*members: Value) -> Value:
        sets = map(torch._C.DispatchKeySet, (keys.Undefined, *members))
        return functools.reduce(lambda one, other: one | other, sets)

    lazy_views = key_set(keys.Conjugate, keys.Negative, keys.ZeroTensor)
    of_derivatives = key_set(
        keys.AutogradFunctionality, keys.AutogradOther, keys.AutogradNestedTensor
    )
    counts_writes = keys.ADInplaceOrView
    # By key of autocast: the ops whose arguments it casts.
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    casts = {
        key: {name for op in registered(own_name) for name in (op, op.partition(".")[0])}
        for own_name, key in keys.__members__.items()
        if own_name.startswith("Autocast")
    }

    @functools.cache
    def cast_by(op: str) -> Value:
        """The keys of autocast that an op keeps from what it runs, because it casts itself."""
        return key_set(*(key for key, names in casts.items() if op in names))

    cast_by_call = key_set()  # by the function of torch that is being called

    @functools.cache
    def has_kernel(op: str, key: str) -> bool:
        try:
            return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op, key))
        except RuntimeError:  # a question to a tensor of the script (`sym_size`) is no such op
            return False

    @functools.cache
    def left_to_parts(op: Op) -> Value:
        """The keys of what torch does before it is a mode's turn, but not to this op: to what it
        runs."""
        name = op.name()
        left = key_set(*casts) - cast_by(name) - cast_by(_RUN_BY.get(name, name))
        made_of_others = has_kernel(name, "CompositeImplicitAutograd")
        derived = not made_of_others and any(
            key.startswith("Autograd") and has_kernel(name, key) for key in keys.__members__
        )
        if not derived:
            left = left | of_derivatives
        writes = op._schema.name.endswith("_")
        if (writes or not derived) and not has_kernel(name, counts_writes.name):
            left = left | key_set(counts_writes)
        return left

    def without_mode(op: Op, types: Value, excluded: Value) -> Value:
        """The keys that an op excludes from what it runs when no mode is active.

        torch leaves some more out of what a mode runs. A product of conjugates that one op computes
        inside (pinv) is then one of the tensors themselves, and one in an op that autocast does not
        know (affine_grid_generator) is of float32. An operator of the script that is made of
        others has no gradient, and one that arrives whole in inference mode (lstm) may choose
        another way to multiply. An update of many tensors (`_foreach_mul_`) leaves their `_version`
        as it was. A tensor class among `types` gets an op of its own, which has its derivative.
        """
        try:
            with torch._C._RestorePythonTLSSnapshot():
                at_call = torch._C._dispatch_tls_local_exclude_set()
        except RuntimeError:  # of TorchBind: Python calls the mode
            return excluded
        left = left_to_parts(op) - cast_by_call - at_call
        if types:
            left = left - of_derivatives
        if left.raw_repr() and _in_handler(sys._getframe(2)):
            left = key_set()
        return excluded - lazy_views - left

    values_only = {"aten::_linalg_svd": "compute_uv", "aten::_linalg_eigh": "compute_v"}
    asks_for_values = False  # the function of torch that is being called

    def with_values_only(op: Op, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Without a derivative, `svdvals` and `eigvalsh` compute no vectors, unless a mode is
        active; values that come with vectors round differently."""
        name = values_only.get(op.name())
        if name is None or not asks_for_values or type(args[0]) not in plain:
            return args, kwargs
        may_have_tangent = torch.autograd.forward_ad._current_level >= 0
        if may_have_tangent or (args[0].requires_grad and torch.is_grad_enabled()):
            return args, kwargs
        return args[:2], {**kwargs, name: False}

    dtypes = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}

    @functools.cache
    def takes_tensors(op: Op) -> tuple[int, ...]:
        """The positions at which an op takes a tensor and no number."""
        if torch._C._should_allow_numbers_as_tensors(op._schema.name.rpartition("::")[2]):
            return ()
        types = (str(argument.type) for argument in op._schema.arguments)
        return tuple(at for at, name in enumerate(types) if name == "Tensor")

    def with_tensors(op: Op, args: Args) -> Args:
        """A mode gets a constant of TorchScript as a number, which most ops refuse."""
        for at in takes_tensors(op):
            if at < len(args) and (dtype := dtypes.get(type(args[at]))) is not None:
                number = torch._C._VariableFunctions.scalar_tensor(args[at], dtype=dtype)
                args = (*args[:at], number, *args[at + 1 :])
        return args

    tracers = tuple(torch._C._TorchDispatchModeKey.__members__.values())

    def is_traced() -> bool:
        """Whether torch writes down what this thread runs (jit.trace, make_fx, export)."""
        if torch._C._get_tracing_state() is not None:
            return True
        if torch._C._dispatch_tls_is_dispatch_key_included(keys.PreDispatch):
            return True
        # The modes that trace are below all others.
        count = torch._C._len_torch_dispatch_stack()
        if count == 0 or isinstance(torch._C._get_dispatch_stack_at(0), OwnMode):
            return False
        return any(torch._C._get_dispatch_mode(key) is not None for key in tracers)

    plain = (torch.Tensor, torch.nn.Parameter)

    def is_tensor(value: Value) -> bool:
        return isinstance(value, torch.Tensor)

    def is_function(value: Value) -> bool:
        return callable(value) and not isinstance(value, torch.Tensor)

    def casts_now(op: str, args: Args, kwargs: Kwargs) -> bool:
        """Whether autocast is on for a device of the arguments, and casts those of this op."""
        devices = {leaf.device.type for leaf in tree_leaves((args, kwargs)) if type(leaf) in plain}
        return any(
            torch.amp.is_autocast_available(device)  # not that of meta tensors
            and torch.is_autocast_enabled(device)
            and cast_by(op).has(getattr(keys, f"Autocast{device.upper()}"))
            for device in devices
        )

    @contextlib.contextmanager
    def unmoded() -> Iterator[bool]:
        """Inside, no mode is entered. The value is False if one of the script's is."""
        own = all(isinstance(mode, OwnMode) for mode in dispatch_stack.modes())
        with dispatch_stack.empty(), function_stack.empty():
            yield own

    class Dispatch(OwnMode, TorchDispatchMode):
        supports_higher_order_operators = True

        def __init__(self, on_op: _Callback):
            super().__init__()  # type: ignore[no-untyped-call]
            self._on_op = on_op
            self._eager = contextlib.ExitStack()
            self._left = True

        def __torch_dispatch__(
            self, func: Op, types: Value, args: Args = (), kwargs: Kwargs | None = None
        ) -> Value:
            if isinstance(func, torch._ops.HigherOrderOperator):
                return self._in_parts(func, args, kwargs or {})
            excluded = without_mode(func, types, torch._C._dispatch_tls_local_exclude_set())
            included = torch._C._dispatch_tls_local_include_set()
            call = as_called(func, torch._C._get_torch_function_state())
            with (
                torch._C.DisableTorchFunction(),
                torch._C._ForceDispatchKeyGuard(included, excluded),
            ):
                args, kwargs = with_values_only(func, with_tensors(func, args), kwargs or {})
                return self._guarded(self._on_op, func, args, kwargs, call)

        def _in_parts(self, func: Op, args: Args, kwargs: Kwargs) -> Value:
            """A higher-order operator (cond, flex_attention): what it runs are ops like others,
            and seen. One that has to do with tensors of the script's classes, or with another mode,
            such as one that traces it (make_fx), is left to them."""
            kernel = func.py_kernels.get(keys.CompositeExplicitAutograd)
            leaves = tree_leaves((args, kwargs))
            own = any(is_tensor(leaf) and type(leaf) not in plain for leaf in leaves)
            others = any(not isinstance(mode, OwnMode) for mode in dispatch_stack.modes())
            if kernel is None or own or others:
                return func(*args, **kwargs)
            if not refuses_modes(kernel):
                return self._on_again(kernel)(*args, **kwargs)
            if func.name() == "cond" and isinstance(args[0], torch.Tensor):
                self._on_again(bool)(args[0])  # as it does, unseen
            return kernel(*(self._on_again(a) if is_function(a) else a for a in args), **kwargs)

        def _on_again(self, call: Function) -> Function:
            def seen(*args: Value, **kwargs: Value) -> Value:
                torch._C._push_on_torch_dispatch_stack(self)
                try:
                    return call(*args, **kwargs)
                finally:
                    torch._C._pop_torch_dispatch_stack(None)

            return seen

        def __enter__(self) -> Value:
            self._eager.enter_context(compiled_code_runs_eagerly())
            if "__new__" not in vars(torch.Tensor):
                self._eager.callback(put_in_place(torch.Tensor, "__new__", constructor))
            for name in ("__enter__", "__exit__"):
                if not is_replaced(inference_mode, name):
                    ours = as_without_ours(getattr(inference_mode, name))
                    self._eager.callback(put_in_place(inference_mode, name, ours))
            self._left = False
            with dispatch_stack.without_those_above():
                return super().__enter__()  # type: ignore[no-untyped-call]

        def __exit__(self, *error: Value) -> None:
            self._eager.close()
            with dispatch_stack.without_those_above(self) as found:
                if found and self._left:  # a backward has put it back
                    torch._C._pop_torch_dispatch_stack(None)
                elif found:
                    super().__exit__(*error)  # type: ignore[no-untyped-call]
            self._left = True
            self._raise_own()

    def in_parts(operator: Op, mode: Mode, *args: Value, **kwargs: Value) -> Value:
        return mode._in_parts(operator, args, kwargs)

    if not hasattr(TorchDispatchMode, "supports_higher_order_operators"):  # in older versions
        for operator in torch._ops._higher_order_ops.values():
            operator.py_impl(Dispatch)(functools.partial(in_parts, operator))

    class Calls(OwnMode, TorchFunctionMode):
        def __init__(self, on_call: _Callback):
            super().__init__()
            self._on_call = on_call
            self._unseen = contextlib.ExitStack()

        def __torch_function__(
            self, func: Function, types: Value, args: Args = (), kwargs: Kwargs | None = None
        ) -> Value:
            nonlocal asks_for_values, cast_by_call
            called, before = func, (asks_for_values, cast_by_call)
            try:
                name = getattr(func, "__name__", None)
                operator = isinstance(func, torch._ops.OpOverloadPacket)
                cast_by_call = cast_by(func._qualified_op_name if operator else f"aten::{name}")
                asks_for_values = (
                    name in _OF_VALUES_ONLY
                    and torch._C._functorch.peek_interpreter_stack() is None  # vmap: with vectors
                )
                unseen = not torch._C._dispatch_tls_is_dispatch_key_included(keys.Python)
                if unseen and any(isinstance(mode, OwnMode) for mode in dispatch_stack.modes()):
                    modes_are_seen(True)  # left: the inference mode in which ours was entered
                called = called_by_name(torch, func)
            except Exception as error:
                self.error = error
            try:
                if is_traced():
                    return called(*args, **(kwargs or {}))
                result = self._guarded(self._on_call, called, args, kwargs or {})
                if name in ROUNDED and type(result) in plain and result.requires_grad:
                    try:
                        casts = casts_now(f"aten::{name}", args, kwargs or {})
                        restore_rounding(result, called, args, kwargs or {}, casts, unmoded)
                    except Exception as error:
                        self.error = error
                return result
            finally:
                asks_for_values, cast_by_call = before

        def __enter__(self) -> Value:
            self._unseen.enter_context(override_checks())
            with function_stack.without_those_above():
                return super().__enter__()  # type: ignore[no-untyped-call]

        def __exit__(self, *error: Value) -> None:
            self._unseen.close()
            with function_stack.without_those_above(self) as found:
                if found:
                    super().__exit__(*error)  # type: ignore[no-untyped-call]
            self._raise_own()

    return Dispatch, Calls, dispatch_stack, function_stack


def _in_handler(frame: FrameType | None) -> bool:
    """Whether a mode or a tensor of the script runs this op: torch has left the same out there."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__torch_dispatch__" and not is_ours(code.co_filename):
            return True
        frame = frame.f_back
    return False


def refuses_modes(kernel: Function) -> bool:
    """Whether a kernel of a higher-order operator raises an error if it runs in a mode."""
    code = getattr(inspect.unwrap(kernel), "__code__", None)
    return code is not None and "_get_current_dispatch_mode" in code.co_names


@contextlib.contextmanager
def compiled_code_runs_eagerly() -> Iterator[None]:
    """Inside, in this thread and where a mode of ours is entered, unless the script sets another
    stance there, which it then keeps."""
    frames: Value = sys.modules.get("torch._dynamo.eval_frame")
    if not hasattr(frames, "_set_stance"):  # before torch 2.6, or nothing compiles
        yield
        return
    kind, ours = frames.DynamoStance, copy.copy(frames._stance)
    vars(ours)["thread"] = get_ident()
    object.__setattr__(ours, "__class__", _eager_in_thread(kind))
    try:
        before = frames._set_stance(ours)
    except RuntimeError:  # within compiled code
        yield
        return
    try:
        yield
    finally:
        # A `with set_stance(...)` of the script that ends later puts ours back.
        object.__setattr__(ours, "__class__", kind)
        if frames._stance is ours:
            frames._set_stance(before)


@functools.cache
def _eager_in_thread(kind: type) -> type:
    """The class of Dynamo's stance for one thread. All threads have the same object, which holds
    what the stance is for the others."""

    class EagerInThread(kind):  # type: ignore[misc]
        @property
        def stance(self) -> Value:
            held = vars(self)
            is_eager = get_ident() == held["thread"] or _own_modes()
            return "force_eager" if is_eager else held["stance"]

    return EagerInThread


@contextlib.contextmanager
def _no_cache_folder() -> Iterator[None]:
    """Inside, torch makes no folder for its cache of compiled code, and chooses none for temporary
    files. It does both as Dynamo is imported, and puts the first into the environment."""
    if _CACHE_FOLDER in os.environ:
        yield
        return
    chosen = tempfile.tempdir
    os.environ[_CACHE_FOLDER] = tempfile.gettempdir()
    try:
        yield
    finally:
        os.environ.pop(_CACHE_FOLDER, None)
        tempfile.tempdir = chosen


@contextlib.contextmanager
def without_modes_of_script() -> Iterator[None]:
    """Inside, no mode sees a call but those of ours."""
    with contextlib.ExitStack() as undo:
        for stack in _mode_classes()[2:]:
            undo.enter_context(stack.without_those_above())
        yield


@contextlib.contextmanager
def without_own_modes() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Inside, no mode of ours is entered in this thread, and compiled code runs compiled. The value
    enters them again."""
    left = _own_modes()

    @contextlib.contextmanager
    def entered() -> Iterator[None]:
        for mode in left:
            mode.__enter__()
        try:
            yield
        finally:
            errors = [mode.take_error() for mode in left]  # their owner is to get them
            for mode in reversed(left):
                mode.__exit__(None, None, None)
            for mode, error in zip(left, errors):
                mode.error = error

    with contextlib.ExitStack() as undo:
        undo.callback(lambda: [mode.__enter__() for mode in left])
        errors = [mode.take_error() for mode in left]
        for mode in reversed(left):
            mode.__exit__(None, None, None)
        for mode, error in zip(left, errors):
            mode.error = error
        yield entered


@contextlib.contextmanager
def modes_within_operators() -> Iterator[None]:
    """Around what torch compiles by itself to run a higher-order operator: inside, modes of ours
    see what that operator runs. They would keep Dynamo from compiling it, and some operators fail
    then (cond, with parameters that need gradients)."""
    torch = loaded_torch()
    operator, inside = torch._ops.HigherOrderOperator, False
    original, thread = operator.__call__, get_ident()

    def call(own: Op, /, *args: Value, **kwargs: Value) -> Value:
        nonlocal inside
        traced = torch._guards.detect_fake_mode((args, kwargs)) is not None
        if inside or traced or get_ident() != thread:
            return original(own, *args, **kwargs)
        inside = True
        try:
            with entered():
                return original(own, *args, **kwargs)
        finally:
            inside = False

    with without_own_modes() as entered, contextlib.ExitStack() as undo:
        undo.callback(put_in_place(operator, "__call__", call))
        yield


def _own_modes() -> list[Mode]:
    """The modes of ours that this thread is in."""
    dispatch, calls, *stacks = _mode_classes()
    return [
        mode for stack in stacks for mode in stack.modes() if isinstance(mode, (dispatch, calls))
    ]


def leave_modes() -> None:
    """Leave the modes of this thread that an interrupt, or a backward, kept from being left."""
    for mode in _own_modes():
        mode.__exit__(None, None, None)


def called_by_name(torch: Torch, func: Function) -> Function:
    """The function of torch that was called, where `func` has taken its place.

    torch gives a mode what the name of its function stands for now: if a script has put its own
    there, that one has just called torch's, and would run twice.
    """
    kind = type(func)
    if kind is not FunctionType:
        if kind.__module__.partition(".")[0] in ("builtins", "torch"):
            return func
    elif is_torch(func.__code__.co_filename):
        return func
    # torch's functions in C are asked for by their name in this class alone.
    names = (name for name, value in vars(torch.Tensor).items() if value is func)
    return next((getattr(torch._C.TensorBase, name, func) for name in names), func)


class _Stack:
    """The modes that torch has entered, of one kind."""

    def __init__(
        self,
        length: Callable[[], int],
        at: Callable[[int], Mode],
        pop: Callable[[], Mode],
        push: Callable[[Mode], None],
    ):
        self._length, self._at, self._pop, self._push = length, at, pop, push

    def modes(self) -> list[Mode]:
        return [self._at(index) for index in range(self._length())]

    @contextlib.contextmanager
    def without_those_above(self, mode: Mode = None) -> Iterator[bool]:
        """Inside, `mode` is on top, or without one whichever of ours is the topmost.

        The value is False if `mode` is not there.
        """
        modes = self.modes()
        wanted = [
            at
            for at, m in enumerate(modes)
            if m is mode or (mode is None and isinstance(m, OwnMode))
        ]
        found = bool(wanted) or mode is None
        above: list[Mode] = []
        try:
            while found and self._length() > 1 + max(wanted, default=-1):
                above.append(self._pop())
            yield found
        finally:
            while above:
                self._push(above.pop())

    @contextlib.contextmanager
    def empty(self) -> Iterator[None]:
        """Inside, there is no mode at all."""
        modes = [self._pop() for _ in range(self._length())]
        try:
            yield
        finally:
            while modes:
                self._push(modes.pop())

    @contextlib.contextmanager
    def without_ours(self) -> Iterator[None]:
        """Inside, only modes of the script are there."""
        before = self.modes()
        for _ in before:
            self._pop()
        for mode in before:
            if not isinstance(mode, OwnMode):
                self._push(mode)
        try:
            yield
        finally:
            while self._length():
                self._pop()
            for mode in before:
                self._push(mode)
