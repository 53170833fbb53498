"""The report as one HTML page without external files, for a browser, a ticket or a colleague."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from launchscope.report import RenderOptions, Reporter
from launchscope.report.document import spans
from launchscope.report.documents import DOCUMENTS, document_of
from launchscope.report.plot import axes_of, tick_label

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_TOP = 30


def render(value: object, options: RenderOptions) -> str:
    """A page in the reader's light or dark colors."""
    document = document_of(value, options.top or _TOP, options.next_commands)
    return _environment().get_template("document.html").render(document=document)


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
    environment.filters |= {"prose": _prose, "axes": axes_of, "tick_label": tick_label}
    return environment


def _prose(text: str) -> Markup:
    """A sentence; text between backticks is code."""
    from markupsafe import Markup, escape

    return Markup("").join(
        Markup("<code>{}</code>").format(part) if is_code else escape(part)
        for part, is_code in spans(text)
    )


REPORTER = Reporter("html", (".html",), dict.fromkeys(DOCUMENTS, render))
