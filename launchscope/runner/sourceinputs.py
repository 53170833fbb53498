"""Which expressions of a step's statements read its inputs, and the same with static names."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from launchscope.model import StepInput

__all__ = ["Read", "bound", "changing", "inputs_of", "loads", "replaced"]

# What may be evaluated once more without any effect; a slice makes a view, not the input.
_PLAIN = (
    ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Tuple, ast.Attribute,
    ast.expr_context, ast.operator, ast.unaryop,
)  # fmt: skip


def bound(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that these statements, loop or function bind."""
    every = [part for node in nodes for part in ast.walk(node)]
    names = {n.id for n in every if isinstance(n, ast.Name) and not loads(n)}
    return names | {n.arg for n in every if isinstance(n, ast.arg)}


def changing(torch: Any, nodes: Iterable[ast.AST], names: dict[str, Any]) -> set[str]:
    """Names that may give another tensor in the next round: bound, stored into, or of an object
    of which a method is called, as a list that grows. Of a tensor a method leaves the address."""
    nodes = list(nodes)
    found = bound(nodes)
    for part in (part for node in nodes for part in ast.walk(node)):
        called = part.func if isinstance(part, ast.Call) else part
        method = called is not part and isinstance(called, ast.Attribute)
        stored = isinstance(called, ast.Attribute | ast.Subscript) and not loads(called)
        if method or stored:
            base: ast.AST = called
            while isinstance(base, ast.Attribute | ast.Subscript):
                base = base.value
            if isinstance(base, ast.Name) and not isinstance(names.get(base.id), torch.Tensor):
                found.add(base.id)
    return found


def _read(nodes: Iterable[ast.AST]) -> dict[str, None]:
    every = [part for node in nodes for part in ast.walk(node)]
    return {n.id: None for n in every if isinstance(n, ast.Name) and loads(n)}


def loads(node: Any) -> bool:
    return isinstance(node.ctx, ast.Load)


@dataclass(frozen=True)
class Read:
    """An input, and the expression that reads it."""

    node: ast.expr
    input: StepInput


def inputs_of(
    torch: Any,
    text: str,
    statements: list[ast.stmt],
    names: dict[str, Any],
    changes: set[str],
    is_input: Callable[[Any], bool],
) -> list[Read]:
    """Every place at which the statements read an input, in source order.

    A tensor of the host that the expression itself moves to the device counts as well.
    """
    found: list[Read] = []
    taken: dict[str, str] = {}

    def visit(node: ast.AST) -> None:
        source = _moved(node)
        if isinstance(node, ast.expr) and (source is not None or _is_chain(node)):
            plain = source or node
            value = _value(plain, names)
            if isinstance(value, torch.Tensor):
                from_host = source is not None and value.device.type == "cpu"
                if is_input(value) or from_host:
                    found.append(Read(node, described(node, plain, value)))
                    return
        for child in ast.iter_child_nodes(node):
            visit(child)

    def described(node: ast.expr, plain: ast.expr, value: Any) -> StepInput:
        origin = ast.get_source_segment(text, plain) or ast.unparse(plain)
        if origin not in taken:
            wanted = f"static_{_base_name(plain)}"
            count = sum(1 for name in taken.values() if name.rstrip("0123456789_") == wanted)
            taken[origin] = f"{wanted}_{count + 1}" if count else wanted
        return StepInput(
            expression=ast.get_source_segment(text, node) or ast.unparse(node),
            copied_from=origin,
            static_name=taken[origin],
            shape=tuple(int(size) for size in value.shape),
            dtype=str(value.dtype),
            constant=node is plain and not set(_read([plain])) & changes,
            requires_grad=bool(value.requires_grad),
        )

    for statement in statements:
        visit(statement)
    return found


def _is_chain(node: ast.AST) -> bool:
    """A name with attributes and subscripts; slices are left out: views, not the input itself."""
    if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript) or not loads(node):
        return False
    parts = list(ast.walk(node))
    called = {id(part.func) for part in parts if _is_len(part)}  # type: ignore[attr-defined]
    return all(isinstance(p, _PLAIN) or _is_len(p) or id(p) in called for p in parts)


def _moved(node: ast.AST) -> ast.expr | None:
    """ "x" of "x.to(device)" and "x.cuda()"."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    moves = node.func.attr in ("to", "cuda") and _is_chain(node.func.value)
    return node.func.value if moves else None


def _is_len(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"


def _base_name(node: ast.expr) -> str:
    """What a person would call it: "images" of "images[step]", "ids" of "batch['ids']"."""
    if isinstance(node, ast.Subscript):
        key = node.slice
        if (
            isinstance(key, ast.Constant)
            and isinstance(key.value, str)
            and key.value.isidentifier()
        ):
            return key.value
        return _base_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else "input"


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    """The expression's value as the step left it; None if that cannot be told."""
    try:
        code = compile(ast.Expression(node), "<step>", "eval")
        return eval(code, {"__builtins__": {"len": len}}, names)
    except Exception:  # the script's own code may raise anything; it is only left out then
        return None


def replaced(lines: list[str], reads: list[Read]) -> list[str]:
    """The file's lines with static names where inputs that change are read."""
    changed = [line.encode() for line in lines]  # the tree counts bytes
    for read in sorted(reads, key=lambda r: (r.node.lineno, r.node.col_offset), reverse=True):
        node = read.node
        if read.input.constant or node.end_lineno != node.lineno:
            continue
        line = changed[node.lineno - 1]
        name = read.input.static_name.encode()
        changed[node.lineno - 1] = line[: node.col_offset] + name + line[node.end_col_offset :]
    return [line.decode() for line in changed]
