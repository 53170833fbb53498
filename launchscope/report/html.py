"""The report as one HTML page without external files, for a browser, a ticket or a colleague.

The page's policy allows its own style sheet and script, by their hashes, and nothing else. Names
from a script or a trace are text in the markup, or values in JSON that the script inserts as text.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from launchscope.model import Profile
from launchscope.report import RenderOptions, Reporter
from launchscope.report.document import (
    Section,
    Table,
    spans,
)
from launchscope.report.documents import DOCUMENTS, document_of
from launchscope.report.documents.next_step import adopt_commands
from launchscope.report.figures import figures_of
from launchscope.report.figures.figure import Kind
from launchscope.visible import inert_json

if TYPE_CHECKING:
    from jinja2 import Environment

_TOP = 200
# Figures that a narrow page shows folded: the answer does not need them.
_EXPLORED: tuple[Kind, ...] = ("runs", "icicle")
_SCRIPTS = ("page.js", "charts.js", "timeline.js")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mu]?s|[KMG]iB)(?!\w))")
# JSON in a script element: nothing in it may end the element or a line of JavaScript, or begin a
# command of CI, which `write_report` would escape in a way that JSON does not know.
_INERT = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&#\u2028\u2029"}


def render(value: object, options: RenderOptions) -> str:
    """A page in the reader's light or dark colors."""
    import msgspec

    document = document_of(value, options.top or _TOP, options.next_commands)
    figures = figures_of(value)
    style, script = page_file("page.css"), "".join(map(page_file, _SCRIPTS))
    data = msgspec.json.encode([asdict(figure) for figure in figures])
    return (
        _environment()
        .get_template("document.html")
        .render(
            document=document,
            figures=figures,
            explored=_EXPLORED,
            next_step=_next_step(value, options),
            data=Markup(inert_json(data).decode().translate(_INERT)),
            style=Markup(style),
            script=Markup(script),
            policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'",
        )
    )


def _next_step(value: object, options: RenderOptions) -> Markup:
    """The first thing to do."""
    steps = [[(command, True)] for command in options.next_commands]
    if isinstance(value, Profile) and value.verdict is not None:
        commands = [[(command, True)] for command in adopt_commands(value)]
        steps = [*commands, *map(spans, value.verdict.instructions), *steps]
    return _marked_up(steps[0] if steps else [])


def _is_sortable(table: Table) -> bool:
    return any(cell.value is not None for row in table.rows[:1] for cell in row)


def _is_explored(section: Section) -> bool:
    """Whether a narrow page shows it folded."""
    tables = (block for block in section.blocks if isinstance(block, Table))
    return section.is_detail or any(map(_is_sortable, tables))


@cache
def page_file(name: str) -> str:
    return files("launchscope.report").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("launchscope.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"prose": _prose, "figure": _figure}
    environment.tests |= {"explored": _is_explored, "sortable": _is_sortable}
    return environment


def _figure(text: str) -> str:
    """A figure that a narrow column breaks before ± and "of" only."""
    return text.replace(" ", "\xa0").replace("\xa0±", " ±").replace("\xa0of", " of")


def _prose(text: str) -> Markup:
    """A sentence that breaks no figure; text between backticks is code."""
    return _marked_up(spans(text))


def _marked_up(parts: list[tuple[str, bool]]) -> Markup:
    """The parts of a sentence, each with whether it is code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part)
        if is_code
        else escape(_BEFORE_UNIT.sub("\xa0", part))
        for part, is_code in parts
    )


REPORTER = Reporter("html", (".html",), dict.fromkeys(DOCUMENTS, render))
