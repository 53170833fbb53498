"""An error of a callback's own stays away from the script; the call runs once."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from launchscope.runner.child.hooks import patches
from launchscope.runner.child.hooks.events import NO_OBSERVER
from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.ops.step_ops import StepStream, recording_syncs
from launchscope.runner.child.ops.torch_modes import ForScriptError, dispatch_mode, function_mode


@pytest.mark.parametrize("make", [dispatch_mode, function_mode])
@pytest.mark.parametrize("ran", [False, True])
def test_an_error_of_a_callback_is_raised_once_the_mode_is_left(make: Any, ran: bool) -> None:
    asked = []

    def fails(func: Any, run: Any, args: Any, kwargs: Any) -> Any:
        asked.append(func)
        if ran:
            run(*args, **kwargs)
        raise KeyError("ours")

    number = torch.zeros(2)
    with pytest.raises(KeyError, match="ours"), make(fails):
        number.add_(1).add_(1)
    assert number.tolist() == [2.0, 2.0]
    assert len(asked) == 1


@pytest.mark.parametrize("make", [dispatch_mode, function_mode])
def test_an_error_of_the_call_and_one_for_the_script_are_raised_at_once(make: Any) -> None:
    def passes(func: Any, run: Any, args: Any, kwargs: Any) -> Any:
        return run(*args, **kwargs)

    def refuses(func: Any, run: Any, args: Any, kwargs: Any) -> Any:
        raise ForScriptError

    with make(passes), pytest.raises(RuntimeError, match="size"):
        torch.zeros(2).add_(torch.zeros(3))
    with make(refuses), pytest.raises(ForScriptError):
        torch.zeros(2)


def test_compiled_code_is_seen_op_by_op_in_a_mode_and_runs_compiled_after_it() -> None:
    compiled, ran, seen = [], [], []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)

        def run(*args: Any) -> Any:
            ran.append(args)
            return graph.forward(*args)

        return run

    def on_op(op: Any, run: Any, args: Any, kwargs: Any) -> Any:
        seen.append(str(op))
        return run(*args, **kwargs)

    @torch.compile(backend=backend, fullgraph=True)
    def call(x: Any) -> Any:
        return x.mul(2).add(1)

    call(torch.ones(3))
    with dispatch_mode(on_op):
        assert call(torch.ones(3)).tolist() == [3.0] * 3
    assert seen == ["aten.ones.default", "aten.mul.Tensor", "aten.add.Tensor"]
    assert (len(compiled), len(ran)) == (1, 1)
    call(torch.ones(3))
    assert (len(compiled), len(ran)) == (1, 2)


def test_an_error_in_a_wrapper_of_torch_is_raised_after_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step_ops = "launchscope.runner.child.ops.step_ops"
    monkeypatch.setattr(f"{step_ops}.code_place", None)
    monkeypatch.setattr(f"{step_ops}.is_replaced", lambda owner, name: False)
    calls = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append(1))
    with pytest.raises(TypeError), recording_syncs(torch, StepStream()):
        torch.cuda.synchronize()
    assert calls == [1]


def test_an_error_in_a_patch_ends_the_measurement_and_not_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("user_line", "runs_function_of", "_may_train", "is_ours"):
        monkeypatch.setattr(patches, name, None)
    hooks = Hooks(torch, NO_OBSERVER)
    calls: list[tuple[object, ...]] = []
    errors: list[Exception] = []
    hooks.broke = errors.append
    for note in (
        patches._note_profiler,
        patches._note_replay,
        patches._note_process,
        patches._note_command,
        patches._note_scheduler,
    ):
        given = ("self", "args") if note is patches._note_command else ("self",)
        patches.noting(hooks, note, lambda *args: calls.append(args))(*given)
    assert [type(error) for error in errors] == [TypeError] * 5
    assert len(calls) == 5


def _branches(x: torch.Tensor) -> Any:
    return torch.ops.higher_order.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def _rounds(x: torch.Tensor) -> Any:
    def goes_on(count: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return count < 3

    def body(count: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return count + 1, x.sin()

    return torch.ops.higher_order.while_loop(goes_on, body, (torch.tensor(0), x), ())[1]


@pytest.mark.parametrize("function", [_branches, _rounds])
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_an_operator_that_another_mode_traces_is_left_to_it(function: Any, mode: Any) -> None:
    x = torch.ones(3)
    plain = make_fx(function, tracing_mode=mode)(x)
    with _inspected():
        measured = make_fx(function, tracing_mode=mode)(x)
    assert measured.print_readable(False) == plain.print_readable(False)
    assert torch.equal(measured(x), function(x))


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated:DeprecationWarning")
def test_what_torchscript_optimizes_may_hold_numbers() -> None:
    """A mode gets them in place of tensors; torch runs ops on them as a function first runs."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return (x * 0.5).add_(1) / 3

    x = torch.ones(2)
    with _inspected():
        assert torch.equal(torch.jit.trace(scaled, (x,))(x), scaled(x))


def test_an_op_computes_with_conjugates_as_without_a_mode() -> None:
    matrix = torch.randn(5, 5, dtype=torch.complex64)
    expected = torch.linalg.pinv(matrix)
    with dispatch_mode(lambda func, run, args, kwargs: run(*args, **kwargs)):
        inverse = torch.linalg.pinv(matrix)
    assert torch.equal(inverse, expected)


def test_an_op_counts_versions_of_what_it_writes_as_without_a_mode() -> None:
    """Autograd finds a saved tensor that was changed by them."""

    def versions() -> list[int]:
        weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
        optimizer = torch.optim.AdamW(weights, foreach=True)
        weights[0].dot(weights[1]).backward()
        torch.nn.utils.clip_grad_norm_(weights, 0.1, foreach=True)
        optimizer.step()
        zero, scale, changed = torch.zeros(1, dtype=torch.int32), torch.ones(1), torch.ones(1)
        observed = torch.randn(3), scale.int(), scale.int(), changed, changed.clone(), scale, zero
        torch.fused_moving_avg_obs_fake_quant(*observed, 0.01, 0, 255, 0)
        written = (*weights, *(weight.grad for weight in weights), *observed)
        return [tensor._version for tensor in written if tensor is not None]

    plain = versions()
    with dispatch_mode(_runs):
        measured = versions()
    assert measured == plain
    assert plain[:4] == [2, 2, 1, 1]


@pytest.mark.parametrize("autocast", [False, True])
def test_an_op_made_of_others_computes_in_inference_mode_as_without_a_mode(autocast: bool) -> None:
    """It arrives whole in a mode then: not as the products that autocast makes smaller, and for
    which torch asks whether the weight has gradients."""
    # Not every CPU has an LSTM in bfloat16, and then plain torch fails.
    has_lstm = not autocast or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    lstm, linear = (torch.nn.LSTM if has_lstm else torch.nn.GRU)(4, 4), torch.nn.Linear(4, 4)
    number, turned = torch.randn(3, 4), torch.randn(3, 5, 4).transpose(0, 1)

    def step() -> list[torch.Tensor]:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            product = torch.einsum("ij,kj->ik", number, linear.weight)
            # Its own autocast has come before the mode, and is not applied to its parts.
            distance = torch.nn.functional.cosine_embedding_loss(number, number + 1, number[:, 0])
            return [product, lstm(number)[0], linear(turned), distance, linear.weight.flatten()]

    plain = step()
    with dispatch_mode(_runs):
        measured = step()
    assert [one.dtype for one in measured] == [one.dtype for one in plain]
    assert [one.requires_grad for one in measured] == [one.requires_grad for one in plain]
    assert all(map(torch.equal, measured, plain))
    assert plain[0].dtype == (torch.bfloat16 if autocast else torch.float32)


@contextlib.contextmanager
def _inspected() -> Iterator[None]:
    with function_mode(_runs), dispatch_mode(_runs):
        yield


@pytest.fixture
def operators() -> Iterator[Any]:
    """Of a script, in Python: what they run may be cast, and has a gradient."""
    with torch.library._scoped_library("launchscope_test", "DEF") as library:
        library.define("product(Tensor x, Tensor y) -> Tensor")
        library.impl("product", torch.mm, "CPU")
        yield torch.ops.launchscope_test


class _Passes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _below_a_mode(function: Any) -> Any:
    def call(*args: Any) -> Any:
        with _Passes():
            return function(*args)

    return call


def _unseen_distances(x: torch.Tensor, y: torch.Tensor) -> Any:
    """As in TorchScript: no function of torch is seen, only ops."""
    with torch._C.DisableTorchFunction():
        return torch.cdist(x, y)


def _places(x: torch.Tensor) -> torch.Tensor:
    return F.affine_grid(x.reshape(-1, 2, 3), [x.numel() // 6, 1, 5, 4], align_corners=False)


def _sum_of_places(x: torch.Tensor) -> torch.Tensor:
    return _places(x).sin().sum()


def _of_places(x: torch.Tensor) -> Any:
    return checkpoint(_places, x, use_reentrant=False)


def _of_distances(x: torch.Tensor, y: torch.Tensor) -> Any:
    return checkpoint(torch.cdist, x, y, use_reentrant=False)


X, Y = (30, 6), (40, 6)  # of fewer rows `cdist` computes without a product
CAST: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "places of a spatial transformer": (_places, (X,)),
    "bilinear": (F.bilinear, (X, X, (2, 6, 6))),
    "pseudoinverse, in float32": (torch.pinverse, (X,)),
    "distances, in float32": (torch.cdist, (X, Y)),
    "distances by a function that is not seen": (_unseen_distances, (X, Y)),
    "places that a backward computes again": (_of_places, (X,)),
    "distances that a backward computes again": (_of_distances, (X, Y)),
    "places below a mode of the script": (_below_a_mode(_places), (X,)),
    "bilinear below a mode of the script": (_below_a_mode(F.bilinear), (X, X, (2, 6, 6))),
    "gradient of a function": (torch.func.grad(_sum_of_places), (X,)),
}


def _with_gradients(function: Any, shapes: Any, *, autocast: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    found: list[torch.Tensor] = []
    for again in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            result = function(*inputs)
            if again:
                result.sin().sum().backward()
        if not again:
            result.sin().sum().backward()
        found += [result, *(x.grad for x in inputs if x.grad is not None)]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        return [*found, function(*(x.detach() for x in inputs))]


def _assert_same(measured: list[torch.Tensor], plain: list[torch.Tensor]) -> None:
    assert [one.dtype for one in measured] == [one.dtype for one in plain]
    assert all(map(torch.equal, measured, plain))


@pytest.mark.parametrize("name", CAST)
def test_an_op_computes_under_autocast_as_without_a_mode(name: str) -> None:
    function, shapes = CAST[name]
    plain = _with_gradients(function, shapes, autocast=True)
    with _inspected():
        measured = _with_gradients(function, shapes, autocast=True)
    _assert_same(measured, plain)


def test_an_encoder_in_evaluation_computes_under_autocast_as_without_a_mode() -> None:
    encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    for without_gradients in (torch.no_grad, torch.inference_mode):
        with without_gradients(), torch.autocast("cpu", torch.bfloat16):
            plain = encoder(x)
            with _inspected():
                measured = encoder(x)
        _assert_same([measured], [plain])
        assert plain.dtype == torch.bfloat16


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered:UserWarning")
def test_an_operator_without_a_derivative_of_its_own_has_that_of_what_it_runs(
    operators: Any, autocast: bool
) -> None:
    shapes = (3, 4), (4, 5)
    plain = _with_gradients(operators.product, shapes, autocast=autocast)
    with _inspected():
        measured = _with_gradients(operators.product, shapes, autocast=autocast)
    _assert_same(measured, plain)
    assert len(plain) == 7
    assert plain[0].dtype == (torch.bfloat16 if autocast else torch.float32)


FIRST_OP = """
import sys, torch
from launchscope.runner.child.ops.torch_modes import dispatch_mode
assert "torch._dynamo" not in sys.modules
with dispatch_mode(lambda func, run, args, kwargs: run(*args, **kwargs)):
    print(torch.equal(torch.ones(2), torch.ones(2)))
"""


@pytest.mark.child
def test_a_process_that_has_not_imported_dynamo_can_enter_a_mode() -> None:
    """As a script does that has no optimizer."""
    ran = subprocess.run([sys.executable, "-c", FIRST_OP], capture_output=True, text=True)
    assert ran.stdout == "True\n", ran.stderr


class _Counting(torch.Tensor):
    called: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.called.append(func.__name__)
        return super().__torch_function__(  # type: ignore[no-untyped-call]
            func, types, args, kwargs or {}
        )


class _Names(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called.append(func.__name__)
        return func(*args, **(kwargs or {}))


def _runs(func: Any, run: Any, args: Any, kwargs: Any) -> Any:
    return run(*args, **kwargs)


def _called_by(step: Callable[[], object], *, measured: bool) -> list[list[str]]:
    """The functions that a class of tensors and a mode of the script are asked about."""
    _Counting.called.clear()
    with dispatch_mode(_runs) if measured else contextlib.nullcontext(), _Names() as names:
        step()
    return [list(_Counting.called), names.called]


def test_an_operator_in_python_calls_functions_of_torch_as_without_a_mode() -> None:
    with torch.library._scoped_library("launchscope_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")

        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * torch.full((2,), 1.0).as_subclass(_Counting).add(1).as_subclass(torch.Tensor)

        library.impl("twice", twice, "CPU")

        def step() -> None:
            assert torch.ops.launchscope_test.twice(torch.ones(2)).tolist() == [2.0, 2.0]

        plain = _called_by(step, measured=False)
        assert "add" in plain[0]
        assert _called_by(step, measured=True) == plain


def test_an_op_in_a_mode_is_asked_of_no_class_and_no_mode_once_more() -> None:
    weight = torch.ones(2).as_subclass(_Counting).requires_grad_()

    def step() -> None:
        torch.autograd.backward(weight.mul(2).sum())

    plain = _called_by(step, measured=False)
    assert all("mul" in names for names in plain)
    assert _called_by(step, measured=True) == plain


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_parts_of_a_nested_tensor_have_the_derivative_of_the_whole() -> None:
    def gradient() -> torch.Tensor:
        weight = torch.ones(4, 6, requires_grad=True)
        rows = [torch.ones(2, 4), torch.ones(3, 4)]
        nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
        parts = [part.unflatten(-1, [2, 1]) for part in (nested @ weight).chunk(3, -1)]
        (parts[0] * parts[1] + parts[2]).values().square().sum().backward()
        assert weight.grad is not None
        return weight.grad

    plain = gradient()
    with _inspected():
        measured = gradient()
    assert torch.equal(measured, plain)
