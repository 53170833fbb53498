"""The report as one HTML page that needs nothing else: for a browser, a ticket, a colleague."""

from __future__ import annotations

from functools import cache
from typing import Any

from launchscope.model import Comparison, Profile
from launchscope.report.comparison.content import content_of as comparison_content_of
from launchscope.report.comparison.curves import drawing
from launchscope.report.content import content_of
from launchscope.report.reporter import Reporter
from launchscope.wording import place

_TONES = {
    "adopt": "good",
    "adopt_after_fixes": "good",
    "adopt_bucketed": "good",
    "already_graphed": "calm",
    "stay_eager": "calm",
    "unsafe": "bad",
}
_MOST_KERNELS = 30


def render(profile: Profile, /, **options: object) -> str:
    """A page in the reader's light or dark colours. Option: `top` kernels (30)."""
    top = options.get("top")
    content = content_of(profile, top=top if isinstance(top, int) else _MOST_KERNELS)
    verdict = profile.verdict
    return _page(
        "profile.html",
        title=f"{content.badge.capitalize()}: {content.title}",
        content=content,
        tone=_TONES.get(verdict.recommendation if verdict is not None else "", "doubt"),
        replayed=any(row.replay or row.change for row in content.rows),
    )


def render_comparison(comparison: Comparison, /, **options: object) -> str:
    """The same for a Comparison, its curves drawn to scale."""
    content = comparison_content_of(comparison)
    return _page(
        "comparison.html",
        title=f"Comparison: {content.title}",
        content=content,
        plots=tuple(map(drawing, content.plots)),
    )


def _page(template: str, **values: Any) -> str:
    page: str = _environment().get_template(template).render(**values)
    return page


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("launchscope.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["prose"] = _prose
    environment.filters["place"] = place
    return environment


def _prose(text: str) -> Any:
    """What stands between backticks is code."""
    from markupsafe import Markup, escape

    parts = [
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(text.split("`"))
    ]
    return Markup("").join(parts)


REPORTER = Reporter("html", (".html",), {Profile: render, Comparison: render_comparison})
