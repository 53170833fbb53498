"""The report as one HTML page without external files, for a browser, a ticket or a colleague.

The page's policy allows its own style sheet and script, by their hashes, and nothing else. Names
from a script or a trace are text in the markup, or values in JSON that the script inserts as text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from launchscope.model import Comparison, Profile, Ranks
from launchscope.report import RenderOptions, Reporter
from launchscope.report.document import Section, Table, spans
from launchscope.report.documents import DOCUMENTS, document_of
from launchscope.report.figures import Figure
from launchscope.report.figures.comparison import of_comparison
from launchscope.report.figures.profile import of_profile
from launchscope.report.figures.ranks import of_ranks
from launchscope.visible import inert_json

if TYPE_CHECKING:
    from jinja2 import Environment

_TOP = 200
_FIGURES: dict[type, Callable[[Any], Iterator[Figure]]] = {
    Profile: of_profile,
    Comparison: of_comparison,
    Ranks: of_ranks,
}
_SCRIPTS = ("page.js", "charts.js", "intervals.js", "timeline.js")
# JSON in a script element: nothing in it may end the element or a line of JavaScript, or begin a
# command of CI, which `write_report` would escape in a way that JSON does not know.
_INERT = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&#\u2028\u2029"}


def render(value: object, options: RenderOptions) -> str:
    """A page in the reader's light or dark colors."""
    import msgspec

    document = document_of(value, options.top or _TOP, options.next_commands)
    of_value = _FIGURES.get(type(value))
    figures = () if of_value is None else tuple(of_value(value))
    style, script = page_file("page.css"), "".join(map(page_file, _SCRIPTS))
    data = msgspec.json.encode(figures)
    return (
        _environment()
        .get_template("document.html")
        .render(
            document=document,
            figures=figures,
            data=Markup(inert_json(data).decode().translate(_INERT)),
            style=Markup(style),
            script=Markup(script),
            policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'",
        )
    )


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
    environment.filters["spans"] = spans
    environment.tests |= {"explored": _is_explored, "sortable": _is_sortable}
    return environment


REPORTER = Reporter("html", (".html",), dict.fromkeys(DOCUMENTS, render))
