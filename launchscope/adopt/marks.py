"""The original of a step that calls no optimizer, with calls that note where a step begins and what
it computes: nothing else shows both in a run of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from launchscope.adopt.names import Uses
from launchscope.adopt.outline import Outline
from launchscope.adopt.source import Edit
from launchscope.runner.protocol.observation import BEGIN, OUTPUT


def marked(plan: Outline, outputs: Iterable[str]) -> bytes:
    """The file with these calls and no other change. `outputs`: what the function returns."""
    region = plan.region
    source = region.source
    first, last = region.statements[0].node, region.statements[-1].node
    at = source.span(first)[0]
    edits = [Edit(at, at, f"{BEGIN}(){_separator(source.text, first, at)}")]
    owner = source.owner_of(region.function)
    bound = Uses([s.node for s in region.statements], owner).binds
    noted = []
    for name in outputs:
        original = plan.attributes.get(name, name)
        if (span := plan.values.get(name)) is not None:
            edits.append(Edit(span[0], span[0], f"{OUTPUT}({name!r}, "))
            edits.append(Edit(span[1], span[1], ")"))
        elif original in bound:
            noted.append(f"{OUTPUT}({name!r}, {original})")
    if noted and not isinstance(last, ast.Return):
        end = source.span(last)[1]
        begin = source.span(last)[0]
        edits.append(Edit(end, end, _separator(source.text, last, begin) + "; ".join(noted)))
    return source.applied(edits).encode(source.encoding)


def _separator(text: str, node: ast.stmt, begin: int) -> str:
    """Between a statement and another one beside it; a compound one has lines of its own."""
    if not hasattr(node, "body"):
        return "; "
    return "\n" + text[text.rfind("\n", 0, begin) + 1 : begin]
