"""The words that a person writes and searches for, in place of PyTorch's names for ops."""

from __future__ import annotations

_WRITTEN = {
    "aten._local_scalar_dense": ".item()",
    "aten.is_nonzero": "bool(tensor)",
    "aten.equal": "torch.equal()",
    "aten._unique": "unique()",
    "aten._unique2": "unique()",
    "aten.unique_dim": "unique()",
    "aten.unique_dim_consecutive": "unique_consecutive()",
    "aten.index": "x[mask]",
    "aten.index_put": "x[mask] = values",
    "aten.index_put_": "x[mask] = values",
    "aten.copy_": "copy_()",
    "aten._copy_from": "copy_()",
    "aten._to_copy": ".to()",
    "aten.to": ".to()",
    "cudaStreamSynchronize": "a synchronization",
}


def as_written(op: str, code: str | None = None) -> str:
    """`.item()` for "aten._local_scalar_dense"; an implicit one if the line does not show it."""
    namespace, _, rest = op.replace("::", ".").partition(".")
    name = f"aten.{rest.partition('.')[0]}" if namespace == "aten" else op
    written = _WRITTEN.get(name)
    if written == ".item()" and code and ".item(" not in code:
        return "an implicit .item()"
    if written is None and namespace in ("aten", "torch"):
        return f"{name.removeprefix('aten.').strip('_')}()"
    return written or op
