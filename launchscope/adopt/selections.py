"""What the call passes in place of a part of a statement: `x[step % 8]`, which a changing number
selects, and `x.to(device)` or `torch.tensor(weights)`, which read the host's memory."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Sequence

from launchscope.adopt.names import COMPREHENSIONS, FUNCTIONS, Names, Uses
from launchscope.adopt.observation import Cause
from launchscope.adopt.source import LOOPS, Edit, Source, reading_expression

_SOMETIMES = (ast.IfExp, ast.BoolOp, ast.Try, ast.Match, *LOOPS, *COMPREHENSIONS,
              *FUNCTIONS)  # fmt: skip


class Selections(ast.NodeTransformer):
    """`nodes` are the statements of the step with a name in place of each part, `parts` these names
    with their code, and `edits` the same change of the text. `changing` are names that select;
    `inside` are those that the step binds, or whose objects it writes to. `causes` are where it
    was seen to read host memory."""

    def __init__(
        self,
        source: Source,
        nodes: Iterable[ast.AST],
        changing: Names,
        inside: Names,
        causes: Iterable[Cause] = (),
    ):
        nodes = [copy.deepcopy(node) for node in nodes]
        self._source, self._changing, self._inside = source, changing, inside
        self._reading = {cause: reading_expression(nodes, cause) for cause in causes}
        self.edits: list[Edit] = []
        self._replaced: set[ast.AST] = set()
        self._names: dict[str, str] = {}
        self._tests: list[str] = []  # around what is visited
        self.nodes: list[ast.AST] = [self.visit(node) for node in nodes]

    @property
    def parts(self) -> Sequence[tuple[str, str]]:
        return [(name, code) for code, name in self._names.items()]

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Subscript | ast.Call) and self._is_part(node):
            return self._name(node)
        if isinstance(node, ast.If):
            return self._visit_branches(node)
        if isinstance(node, _SOMETIMES):  # before the call it would always be computed
            return node
        self.generic_visit(node)
        return node

    def _is_part(self, node: ast.Subscript | ast.Call) -> bool:
        reads = Uses([node]).reads
        if reads & self._inside:
            return False
        if isinstance(node, ast.Call):
            return node in self._reading.values()
        chosen = reads & self._changing or node in self._reading.values()
        return bool(chosen) and isinstance(node.ctx, ast.Load)

    @property
    def passed(self) -> set[Cause]:
        """The causes that are in a part."""
        return {cause for cause, node in self._reading.items() if node in self._replaced}

    def _visit_branches(self, node: ast.If) -> ast.AST:
        if Uses([node.test]).reads & (self._inside | self._changing):
            return node
        test = ast.unparse(node.test)
        for body, asked in ((node.body, f"({test})"), (node.orelse, f"not ({test})")):
            self._tests.append(asked)
            body[:] = map(self.visit, body)  # type: ignore[arg-type]
            self._tests.pop()
        return node

    def _name(self, node: ast.Subscript | ast.Call) -> ast.Name:
        code = self._source.code(node)
        if self._tests:
            code = f"{code} if {' and '.join(self._tests)} else None"
        if code not in self._names:
            root: ast.AST = node
            while not isinstance(root, ast.Name) and (
                hasattr(root, "value") or hasattr(root, "func")
            ):
                root = root.func if isinstance(root, ast.Call) else root.value  # type: ignore[attr-defined]
            self._names[code] = self._source.fresh(f"{getattr(root, 'id', 'value')}_part")
        self._replaced.update(ast.walk(node))
        self.edits.append(Edit(*self._source.span(node), self._names[code]))
        return ast.copy_location(ast.Name(self._names[code], ast.Load()), node)
