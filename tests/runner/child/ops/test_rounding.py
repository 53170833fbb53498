"""Gradients that torch computes in another way in a mode have each bit that they have without."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from launchscope.runner.child.ops.torch_modes import dispatch_mode, function_mode

pytestmark = pytest.mark.slow

INF, NAN = float("inf"), float("nan")
EXTREMES = ("max", "min", "median", "nanmedian")
OF_WHOLE: dict[str, Callable[[Any], Any]] = {
    "prod": torch.prod,
    "prod in double precision": lambda x: x.double().prod(dtype=torch.float64),
    "prod of a dimension": lambda x: x.prod(-1).sum() if x.dim() else x.prod(0),
    "keywords": lambda x: torch.max(input=x) + torch.prod(input=x),
    "amax and amin": lambda x: x.amax() - x.amin(),
    "method": lambda x: x.max(),
    **{name: getattr(torch, name) for name in EXTREMES},
}
VALUES = {
    "no zero": [[1.5, -2.25, 0.3], [0.7, 3.1, -1.1]],
    "one zero": [[1.5, -2.25, 0.3], [0.7, 0.0, -1.1]],
    "two zeros, and what overflows": [[0.0, -0.0, 3e38], [6e4, 6e4, -6e4]],
    "zeros only": [[0.0, -0.0, 0.0], [0.0, 0.0, -0.0]],
    "ties": [[3.0, 3.0, -2.0], [-2.0, 3.0, -2.0]],
    "NaN": [[NAN, 1.0, 2.0], [NAN, -1.0, 3.0]],
    "NaN and zeros": [[0.0, NAN, 0.0], [1.0, 2.0, 3.0]],
    "infinite": [[INF, 2.0, -INF], [INF, 2.0, 1.0]],
    "infinite and zeros": [[0.0, -INF, 0.0], [INF, 2.0, 1.0]],
}
INCOMING = (-3.0, 0.0, -0.0, INF, NAN)


@contextlib.contextmanager
def _inspected() -> Iterator[None]:
    def runs(func: Any, run: Any, args: Any, kwargs: Any) -> Any:
        return run(*args, **kwargs)

    with function_mode(runs), dispatch_mode(runs):
        yield


def _forms(values: torch.Tensor) -> Iterator[torch.Tensor]:
    yield from (values, values[0], values[0, 0], values[:1, :1], values[:0], values.t())
    yield torch.stack([values, values + 1], -1)[..., 0]
    yield values[:, :1].expand(2, 3)


def _bits(found: torch.Tensor) -> tuple[Any, ...]:
    """A NaN is one, of whatever sign."""
    parts = torch.view_as_real(found.resolve_conj()) if found.is_complex() else found
    signs = parts.signbit() & ~parts.isnan()
    return found.dtype, found.shape, found.stride(), str(parts.tolist()), signs.tolist()


def _gradient(function: Any, leaf: torch.Tensor, incoming: float, *, batched: bool) -> Any:
    leaf = leaf.detach().requires_grad_()
    try:
        result = function(leaf)
        above = torch.full_like(result, incoming)
        above = torch.stack([above, above * 2]) if batched else above
        [found] = torch.autograd.grad(result, leaf, above, is_grads_batched=batched)
    except (RuntimeError, IndexError) as error:  # there is no maximum of an empty tensor
        return type(error).__name__
    return _bits(found)


def _gradients(function: Any, dtype: torch.dtype, *, batched: bool = False) -> dict[Any, Any]:
    """Of each form of tensor for one dtype and one of the gradients of the result."""
    found = {}
    for values, (at, incoming) in itertools.product(VALUES, enumerate(INCOMING)):
        given = torch.tensor(VALUES[values], dtype=torch.float64)
        if dtype.is_complex:
            given = torch.complex(given, given.flip(1) * (given != 0))
        forms = list(_forms(given.to(dtype)))
        several = dtype == torch.float32 and incoming == INF and not batched
        for form, leaf in enumerate(forms if several else forms[:1]):
            found[values, at, form] = _gradient(function, leaf, incoming, batched=batched)
    return found


def _differences(measured: dict[Any, Any], plain: dict[Any, Any]) -> list[Any]:
    return [(key, measured[key], plain[key]) for key in plain if measured[key] != plain[key]]


@pytest.mark.parametrize("name", OF_WHOLE)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
def test_gradients_of_products_and_extremes_have_the_bits_of_python(name: str, dtype: Any) -> None:
    plain = _gradients(OF_WHOLE[name], dtype)
    with _inspected():
        measured = _gradients(OF_WHOLE[name], dtype)
    assert _differences(measured, plain) == []


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_gradients_of_complex_products_have_the_bits_of_python(dtype: Any) -> None:
    plain = _gradients(torch.prod, dtype)
    with _inspected():
        measured = _gradients(torch.prod, dtype)
    assert _differences(measured, plain) == []


@pytest.mark.parametrize("name", ["prod", *EXTREMES])
def test_several_gradients_at_once_have_the_bits_of_python(name: str) -> None:
    plain = _gradients(OF_WHOLE[name], torch.float32, batched=True)
    with _inspected():
        measured = _gradients(OF_WHOLE[name], torch.float32, batched=True)
    assert _differences(measured, plain) == []


@pytest.mark.parametrize("name", ["prod", *EXTREMES])
def test_a_gradient_of_a_gradient_is_that_of_python(name: str) -> None:
    def second() -> list[torch.Tensor]:
        leaf = torch.tensor([[1.5, 0.5], [0.25, 2.0]], requires_grad=True)
        result = OF_WHOLE[name](leaf * leaf) ** 2
        [first] = torch.autograd.grad(result, leaf, create_graph=True)
        return [first.detach(), *torch.autograd.grad(first.sum(), leaf)]

    plain = second()
    with _inspected():
        measured = second()
    assert all(map(torch.allclose, measured, plain))


def test_a_meta_tensor_has_a_product_and_its_gradient() -> None:
    for name in ("prod", "prod of a dimension"):
        with _inspected():
            leaf = torch.zeros(2, 3, device="meta", requires_grad=True)
            OF_WHOLE[name](leaf).backward()
        assert leaf.grad is not None
        assert leaf.grad.is_meta


class _Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


def test_a_mode_of_the_script_sees_the_same_ops() -> None:
    def ops() -> list[str]:
        names = _Names()
        with names:
            leaf = torch.ones(3, requires_grad=True)
            (leaf.max() + leaf.prod()).backward()
        return names.seen

    plain = ops()
    with _inspected():
        assert ops() == plain
