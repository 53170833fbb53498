"""A line that runs a part of the step and reads or keeps its result, as
`losses.append(f(model(x)).item())`, becomes two: the second one does that."""

from __future__ import annotations

import ast

from launchscope.adopt.observation import Observation
from launchscope.adopt.region import Marks
from launchscope.adopt.source import Source, first_line, last_line, reading_expression
from launchscope.adopt.split_source import NewLines, SplitSource


def split_shared(source: Source, marks: Marks, seen: Observation) -> SplitSource | None:
    """None where there is no such line."""
    parts: dict[int, tuple[str, str]] = {}
    for statement in marks:
        line = statement.lineno
        alone = [s for s in source.block_of if first_line(s) <= line <= last_line(s)]
        is_plain = alone[-1] is statement and source.lines[line - 1].strip() == source.code(
            statement
        )
        read = _read_part(statement, seen)
        if is_plain and read is not None:
            begin, end = source.span(read)
            name, start = source.fresh("result"), source.offset(line, 0)
            rest = source.lines[line - 1]
            rest = f"{rest[: begin - start]}{name}{rest[end - start :]}"
            first = f"{source.indent(line)}{name} = {source.text[begin:end]}{source.newline}"
            parts[line] = first, rest
    if not parts:
        return None
    texts = [
        (number, text)
        for number, line in enumerate(source.lines, 1)
        for text in parts.get(number, (line,))
    ]
    return NewLines(source, texts, split=frozenset(parts)).located(marks, seen)


def _read_part(statement: ast.stmt, seen: Observation) -> ast.expr | None:
    """The expression whose result the statement was seen to read or to keep first."""
    causes = (c for line in seen.lines if line.line == statement.lineno for c in line.causes)
    for cause in causes:
        node = reading_expression([statement], cause)
        if cause.changed and isinstance(statement, ast.Expr):
            node = statement.value
        inner = [node.func, *node.args] if isinstance(node, ast.Call) else [node]
        for part in inner:
            part = part.value if isinstance(part, ast.Attribute) else part
            if part is not None and any(isinstance(n, ast.Call) for n in ast.walk(part)):
                return part
    return None
