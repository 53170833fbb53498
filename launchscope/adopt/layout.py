"""Where lines, the new function and its import go, and what of blank lines and comments stays."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from launchscope.adopt.source import Statement

DECORATOR = "graphed"
IMPORT = f"from launchscope import {DECORATOR}"


def wrapped(head: str, parts: Sequence[str], tail: str, room: int, indent: str) -> str:
    line = head + ", ".join(parts) + tail
    if len(line) <= room or not parts:
        return line
    return "\n".join([head, *(f"{indent}{part}," for part in parts), tail])


def own_line(statement: Statement) -> cst.BaseStatement:
    """A statement in a line of its own, with the comments of the line that it shares."""
    line, unit = statement.line, statement.unit
    if isinstance(unit, cst.BaseCompoundStatement):
        return unit
    assert isinstance(unit, cst.BaseSmallStatement)
    small = unit.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
    if isinstance(line, cst.SimpleStatementLine):
        leading = line.leading_lines if line.body[0] is unit else ()
        trailing = line.trailing_whitespace if line.body[-1] is unit else None
        made = cst.SimpleStatementLine([small], leading_lines=leading)
        return made if trailing is None else made.with_changes(trailing_whitespace=trailing)
    return cst.SimpleStatementLine([small])


def joined(statements: Sequence[Statement]) -> list[cst.BaseStatement]:
    """Lines as they are, except where a line has lost some of its statements."""
    found: list[cst.BaseStatement] = []
    seen: list[cst.CSTNode] = []
    for statement in statements:
        line = statement.line
        if isinstance(line, cst.SimpleStatementLine):
            units = [s.unit for s in statements if s.line is line]
            if len(units) == len(line.body):
                if not any(line is other for other in seen):
                    seen.append(line)
                    found.append(line)
                continue
        found.append(own_line(statement))
    return found


def blanks(line: cst.CSTNode) -> list[cst.EmptyLine]:
    """The blank lines in front of a statement, up to its first comment."""
    found = []
    for empty in getattr(line, "leading_lines", ()):
        if empty.comment is not None:
            break
        found.append(empty)
    return found


def without_blanks(line: cst.BaseStatement) -> cst.BaseStatement:
    leading = list(getattr(line, "leading_lines", ()))
    return line.with_changes(leading_lines=leading[len(blanks(line)) :])


def with_blanks(line: cst.BaseStatement, new: list[cst.EmptyLine]) -> cst.BaseStatement:
    leading = list(getattr(line, "leading_lines", ()))
    return line.with_changes(leading_lines=[*new, *leading[len(blanks(line)) :]])


class Placing(cst.CSTTransformer):
    """Puts the new block, the function and the import where they belong."""

    def __init__(
        self,
        old: cst.CSTNode,
        new: cst.CSTNode,
        anchor: cst.CSTNode,
        definition: cst.FunctionDef,
        config: cst.PartialParserConfig,
    ):
        super().__init__()
        self._old, self._new, self._anchor = old, new, anchor
        self._definition, self._config = definition, config

    def of(self, module: cst.Module) -> cst.Module:
        at_top = any(line is self._anchor for line in module.body)
        blanks = [cst.EmptyLine(indent=False)] * (2 if at_top else 1)
        self._definition = self._definition.with_changes(leading_lines=blanks)
        self._between = blanks
        changed = module.visit(self)
        assert isinstance(changed, cst.Module)
        return self._with_import(changed)

    def on_leave(self, original: cst.CSTNode, updated: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        if original is self._old:
            return self._new
        if original is self._anchor:
            leading = [*updated.leading_lines]  # type: ignore[attr-defined]
            present = len(blanks(updated))
            missing = self._between[present:]
            behind = updated.with_changes(leading_lines=[*missing, *leading])
            return cst.FlattenSentinel([self._definition, behind])  # type: ignore[return-value]
        return updated

    def _with_import(self, module: cst.Module) -> cst.Module:
        """The import behind the first imports of the file, in a line of its own."""
        line = cst.parse_statement(IMPORT + "\n", self._config)
        kinds = [
            {type(small) for small in own.body}
            if isinstance(own, cst.SimpleStatementLine)
            else set()
            for own in module.body
        ]
        imports = [bool(found) and found <= {cst.Import, cst.ImportFrom} for found in kinds]
        index = int(kinds[:1] == [{cst.Expr}])  # behind a docstring
        if any(imports):
            index = imports.index(True)
            while index < len(imports) and imports[index]:
                index += 1
        elif index:
            line = line.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
        body = list(module.body)
        body.insert(index, line)
        return module.with_changes(body=body)
