"""Which expressions of a step's statements read its inputs, and the same with static names."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from launchscope.model import StepInput
from launchscope.runner.source.batch import batch_of

__all__ = [
    "Edit", "Read", "bound", "changing", "edited", "inputs_of", "is_chain", "loads", "names_read",
    "substitutes", "value_of",
]  # fmt: skip

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


def names_read(nodes: Iterable[ast.AST]) -> dict[str, None]:
    """Names that these nodes read, in source order."""
    every = [part for node in nodes for part in ast.walk(node)]
    return {n.id: None for n in every if isinstance(n, ast.Name) and loads(n)}


def loads(node: Any) -> bool:
    return isinstance(node.ctx, ast.Load)


Edit = tuple[int, int, int, str]  # line, bytes of it from and to, what to write there


@dataclass(frozen=True)
class Read:
    """An expression that reads an input, or several that a batch holds together."""

    node: ast.expr
    inputs: tuple[StepInput, ...]
    static_name: str
    gathers: str = ""  # the line that puts static tensors together as the batch did
    adapts: str = ""  # the lines that do it with the first batch at hand
    kept: tuple[str, ...] = ()  # what stays as that batch has it
    unseen: tuple[str, ...] = ()  # what has inputs that none of these lines gives

    @property
    def constant(self) -> bool:
        return all(entry.constant for entry in self.inputs)  # of none, too: nothing to exchange


def inputs_of(
    torch: Any,
    text: str,
    statements: Sequence[ast.AST],
    names: dict[str, Any],
    changes: set[str],
    fresh: set[str],
    is_input: Callable[[Any], bool],
) -> list[Read]:
    """Every place at which the statements read an input, in source order.

    A tensor of the host that the expression itself moves to the device counts as well.
    `fresh` are names that the loop binds anew, of all in `changes`.
    """
    found: list[Read] = []
    taken: dict[str, str] = {}

    def visit(node: ast.AST, whole: bool = True) -> None:
        source = _moved(node)
        if isinstance(node, ast.expr) and (source is not None or is_chain(node)):
            plain = source or node
            value = value_of(plain, names)
            if isinstance(value, torch.Tensor):
                from_host = source is not None and value.device.type == "cpu"
                if is_input(value) or from_host:
                    # What also casts stays, behind the static tensor.
                    format_of = _format(torch, node, names) if from_host else None
                    casts = _casts(torch, node, names, but=format_of is not None)
                    read = plain if casts else node
                    shown = node if from_host else read
                    like = value if casts or format_of is None else _formatted(value, format_of)
                    entry = described(text_of(shown), text_of(plain), _base_name(plain), like)
                    constant = shown is plain and not set(names_read([plain])) & changes
                    entry = replace(entry, constant=constant)
                    found.append(Read(read, (entry,), entry.static_name))
                    return
            elif set(names_read([plain])) & changes and not _casts(torch, node, names):
                batch = gathered(node, plain, value, whole)
                if batch is not None:
                    found.append(batch)
                    return
        for child in ast.iter_child_nodes(node):
            # Of an object that has some attribute read, no more than that is known to be read.
            visit(child, not isinstance(node, ast.Attribute | ast.Subscript))

    def text_of(node: ast.expr) -> str:
        return ast.get_source_segment(text, node) or ast.unparse(node)

    def named(origin: str, wanted: str) -> str:
        """A name of its own for each origin."""
        if origin not in taken:
            names = (f"{wanted}_{n}" if n > 1 else wanted for n in itertools.count(1))
            taken[origin] = next(name for name in names if name not in taken.values())
        return taken[origin]

    def described(expression: str, origin: str, base: str, value: Any) -> StepInput:
        return StepInput(
            expression=expression,
            copied_from=origin,
            static_name=named(origin, f"static_{base}"),
            shape=tuple(int(size) for size in value.shape),
            dtype=str(value.dtype),
            requires_grad=bool(value.requires_grad),
            strides=_strides(torch, value),
        )

    def gathered(node: ast.expr, plain: ast.expr, value: Any, whole: bool) -> Read | None:
        """Several tensors that a batch holds together, some of them inputs."""
        base, origin, shown = _base_name(plain), text_of(plain), text_of(node)
        known = origin in taken
        static = named(origin, f"static_{base}")
        moves = node is not plain
        batch = batch_of(
            torch,
            value,
            origin,
            static,
            lambda tensor: moves or is_input(tensor),
            lambda path, key, tensor: described(shown + path, origin + path, key or base, tensor),
            made_anew=whole and bool(set(names_read([plain])) & fresh),
        )
        if batch is None or not batch.inputs:
            taken.pop(origin if not known else "", None)
        if batch is None:
            return None
        if not batch.inputs:
            return Read(node, (), "", unseen=tuple(batch.unseen))
        made = "\n".join([f"{static} = {batch.code}", *batch.exchanges])
        where = {"adapts" if batch.needs_one else "gathers": made}
        more = {"kept": tuple(batch.kept), "unseen": tuple(batch.unseen)}
        return Read(node, tuple(batch.inputs), static, **where, **more)  # type: ignore[arg-type]

    for statement in statements:
        visit(statement)
    return found


def _casts(torch: Any, node: ast.AST, names: dict[str, Any], but: bool = False) -> bool:
    """Whether ".to()" may change more than the device; `but`: than the order in memory, too."""
    if not isinstance(node, ast.Call):
        return False
    places = [a for a in node.args if not isinstance(value_of(a, names), str | int | torch.device)]
    known = ("device", "non_blocking", *(("memory_format",) if but else ()))
    return bool(places) or any(k.arg not in known for k in node.keywords)


def _format(torch: Any, node: ast.AST, names: dict[str, Any]) -> Any:
    """The order in memory that ".to()" asks for; None if it asks for none of its own."""
    asked = [k.value for k in getattr(node, "keywords", []) if k.arg == "memory_format"]
    found = value_of(asked[0], names) if asked else None
    ordered = isinstance(found, torch.memory_format) and found != torch.preserve_format
    return found if ordered else None


def _formatted(value: Any, order: Any) -> Any:
    return value.detach().to("meta").to(memory_format=order).requires_grad_(value.requires_grad)


def _strides(torch: Any, value: Any) -> tuple[int, ...]:
    """Those of a dense tensor in the same order, if that is another one than by rows."""
    if value.layout != torch.strided:
        return ()
    like = torch.empty_like(value, device="meta").stride()
    rows = torch.empty(value.shape, device="meta").stride()
    return () if like == rows else tuple(int(stride) for stride in like)


def is_chain(node: ast.AST) -> bool:
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
    moves = node.func.attr in ("to", "cuda") and is_chain(node.func.value)
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


def value_of(node: ast.expr, names: dict[str, Any]) -> Any:
    """The expression's value as the step left it; None if that cannot be told."""
    try:
        code = compile(ast.Expression(node), "<step>", "eval")
        return eval(code, {"__builtins__": {"len": len}}, names)
    except Exception:  # the script's own code may raise anything; it is only left out then
        return None


def substitutes(reads: list[Read]) -> list[Edit]:
    """Static names where inputs that change are read."""
    return [
        (r.node.lineno, r.node.col_offset, r.node.end_col_offset or 0, r.static_name)
        for r in reads
        if not r.constant and r.node.end_lineno == r.node.lineno
    ]


def edited(lines: list[str], edits: Iterable[Edit]) -> list[str]:
    """The file's lines with parts of them replaced; the parts do not overlap."""
    changed = [line.encode() for line in lines]  # the tree counts bytes
    for number, begin, end, text in sorted(edits, reverse=True):
        line = changed[number - 1]
        changed[number - 1] = line[:begin] + text.encode() + line[end:]
    return [line.decode() for line in changed]
