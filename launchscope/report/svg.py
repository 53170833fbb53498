"""The timeline of a step, or the curves of a comparison, as one SVG picture for documents.

It draws what the HTML page draws, in the page's colors and patterns, without a script. A viewer
that knows dark mode gets the page's dark colors; the background is a part of the picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from math import ceil, floor, log10
from textwrap import wrap
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from launchscope.errors import UsageError
from launchscope.model import Comparison, Profile
from launchscope.report import RenderOptions, Reporter
from launchscope.report.document import Document, Plot
from launchscope.report.documents import document_of
from launchscope.report.figures import Figure, figures_of
from launchscope.report.html import in_ascii, page_file
from launchscope.report.plot import axes_of, tick_label

_WIDTH, _MARGIN = 960, 20
_NAMES = 136  # pixels for the names of lanes
_LEFT, _RIGHT = _MARGIN + _NAMES, _WIDTH - _MARGIN
_LANE, _IDLE_LANE, _SPACE = 16, 28, 4
_LETTER, _BOLD = 6.1, 8.4  # a wide guess of a letter's width, where nothing can be measured
_FEWEST_LETTERS = 6
_SMALL = 11
# What a label in a lane means.
_TONES = {
    "kernel": "busy",
    "memcpy": "copy",
    "memset": "copy",
    "graph": "launch",
    "launch": "launch",
    "sync": "sync",
}
_LEGEND = {
    "range": "ranges",
    "operator": "operators",
    "launch": "launch calls",
    "busy": "kernels",
    "copy": "copies and sets",
}
_OTHERS = "work of other iterations"
_SERIES = (("launch", ""), ("busy", "7 3"), ("data", "2 3"))
_COLOR = r"(?:[^(),]|\([^()]*\))+"
_PAIR = re.compile(rf"--([\w-]+): light-dark\(({_COLOR}), ({_COLOR})\)|--([\w-]+): (#\w+)")
_PATTERN = re.compile(r'^  (\w+): "(M[^"]+)",$', re.MULTILINE)


def render(value: Profile | Comparison, options: RenderOptions) -> str:
    """UsageError for a value that has neither a timeline nor a curve."""
    document = document_of(value, 1)
    figures = [f for f in figures_of(value, document) if f.kind in ("timeline", "lines")]
    if not figures:
        raise _nothing_to_draw(value)
    picture = _Picture()
    picture.text(_MARGIN, 30, document.title, "strong")
    picture.height = 40
    for line in document.context[:1]:
        picture.text(_MARGIN, 48, line, "dim")
        picture.height = 58
    for figure in figures:
        (_timeline if figure.kind == "timeline" else _curves)(picture, figure)
        picture.paragraph(figure.note)
    return picture.svg(document, figures)


def _nothing_to_draw(value: Profile | Comparison) -> UsageError:
    if isinstance(value, Profile):
        return UsageError(
            "no step of this profile was traced, so there is no timeline to draw",
            hint="that needs a GPU, and --trace above 0",
        )
    return UsageError(
        "this comparison has no curve to draw",
        hint="--batch-sizes 8,32 measures two points; -o report.html draws strategies and buckets",
    )


class _Picture:
    """Elements from the top to the bottom, and the tones that they need."""

    def __init__(self) -> None:
        self.height = 0.0
        self._parts: list[str] = []
        self._tones: set[str] = set()

    def add(self, tag: str, content: str | None = None, **attributes: object) -> None:
        made = " ".join(
            f"{name.strip('_').replace('_', '-')}={quoteattr(_short(given))}"
            for name, given in attributes.items()
        )
        self._parts.append(
            f"<{tag} {made}/>" if content is None else f"<{tag} {made}>{content}</{tag}>"
        )

    def text(self, x: float, y: float, text: str, kind: str = "dim", anchor: str = "start") -> None:
        self.add("text", escape(text), x=x, y=y, class_=kind, text_anchor=anchor)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.add("path", d=f"M{_short(x1)} {_short(y1)}L{_short(x2)} {_short(y2)}", class_=kind)

    def use(self, tone: str) -> None:
        self._tones.add(tone)

    def bars(self, tone: str, bars: Iterable[tuple[float, float, float, float]]) -> None:
        """Bars of one tone: left end, upper end, width and height of each."""
        drawn = "".join(
            f"M{_short(x)} {_short(y)}h{_short(wide)}v{_short(tall)}h-{_short(wide)}z"
            for x, y, wide, tall in bars
        )
        if drawn:
            self.use(tone)
            self.add("path", d=drawn, class_=f"t-{tone}")

    def paragraph(self, text: str) -> None:
        """Small print, in as many lines as it needs."""
        for line in wrap(text, int((_WIDTH - 2 * _MARGIN) / _LETTER * 12 / _SMALL)):
            self.height += 16
            self.text(_MARGIN, self.height, line, "small")
        self.height += 12

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        """Tones and their names, in rows."""
        x, self.height = float(_MARGIN), self.height + 18
        for tone, name in entries:
            wide = 28 + len(name) * _LETTER
            if x + wide > _RIGHT:
                x, self.height = _MARGIN, self.height + 20
            self.bars(tone, [(x, self.height - 11, 14.0, 13.0)])
            self.text(x + 20, self.height, name)
            x += wide + 14
        self.height += 8

    def svg(self, document: Document, figures: Sequence[Figure]) -> str:
        height = round(self.height + 6)
        text = " ".join(f"{figure.heading}. {figure.text}" for figure in figures)
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
                f'width="{_WIDTH}" height="{height}" role="img" aria-labelledby="title desc">',
                f'<title id="title">{escape(document.title)}</title>',
                f'<desc id="desc">{escape(text)}</desc>',
                f"<style>{self._style()}</style>",
                f"<defs>{''.join(self._patterns())}</defs>",
                f'<rect width="{_WIDTH}" height="{height}" rx="8" class="card"/>',
                *self._parts,
                "</svg>\n",
            )
        )

    def _patterns(self) -> Iterator[str]:
        for tone in sorted(self._tones & _patterns().keys()):
            yield (
                f'<pattern id="p-{tone}" width="8" height="8" patternUnits="userSpaceOnUse">'
                f'<rect width="8" height="8" class="f-{tone}"/>'
                f'<path d="{_patterns()[tone]}" class="motif"/></pattern>'
            )

    def _style(self) -> str:
        """Light colors as they are, because a program for documents may know no others."""
        plain = sorted(self._tones)
        fixed = [
            "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif}",
            f".small,.in{{font-size:{_SMALL}px}}.strong{{font-weight:600;font-size:13px}}",
            "path{fill:none}.dash{stroke-dasharray:4 4}.line{stroke-width:2}",
            ".motif{stroke-width:1.3;fill-opacity:.5}",
            *(f".t-{tone}{{fill:url(#p-{tone})}}" for tone in plain if tone in _patterns()),
        ]
        return "".join(
            (
                *fixed,
                *self._colors(plain, 0),
                "@media(prefers-color-scheme:dark){",
                *self._colors(plain, 1),
                "}",
            )
        )

    def _colors(self, tones: Sequence[str], theme: int) -> Iterator[str]:
        def color(name: str) -> str:
            return _palette()[name][theme]

        yield f".card{{fill:{color('card')};stroke:{color('line')}}}.paper{{fill:{color('card')}}}"
        yield f".strong,.on-paper{{fill:{color('ink')}}}.dim,.small{{fill:{color('dim')}}}"
        yield f".grid{{stroke:{color('line')}}}.axis{{stroke:{color('dim')}}}"
        yield f".point{{stroke:{color('card')};stroke-width:1.5}}"
        yield f".dash{{stroke:{color('ink')}}}.track{{fill:{color('track')}}}"
        motif, opacity = (("#fff", 0.6), ("#000", 0.38))[theme]
        yield f".motif{{stroke:{motif};fill:{motif};stroke-opacity:{opacity}}}"
        for tone in tones:
            yield f".f-{tone}{{fill:{color(tone)}}}.s-{tone}{{stroke:{color(tone)}}}"
            if tone not in _patterns():
                yield f".t-{tone}{{fill:{color(tone)}}}"
            if f"on-{tone}" in _palette():
                yield f".on-{tone}{{fill:{color(f'on-{tone}')}}}"


# --------------------------------------------------------------------------- timeline


def _timeline(picture: _Picture, figure: Figure) -> None:
    """Each step with its lanes, all at one scale, and what the tones mean."""
    data = figure.data
    labels, causes = data["labels"], data["causes"]
    per_ns = (_RIGHT - _LEFT) / (max(step["duration"] for step in data["steps"]) * 1.01)
    tones: set[str] = set()
    for step in data["steps"]:
        picture.text(_MARGIN, picture.height + 16, step["title"], "strong")
        after = _MARGIN + 12 + len(step["title"]) * _BOLD
        picture.text(after, picture.height + 16, step["length"])
        picture.text(_MARGIN, picture.height + 33, step["summary"], "small")
        picture.height += 42
        tones |= _step(picture, step, labels, causes, per_ns)
        _time_axis(picture, per_ns)
    names = {**_LEGEND, **causes, "other": _OTHERS}
    picture.legend([(tone, names[tone]) for tone in names if tone in tones])


def _step(
    picture: _Picture,
    step: Mapping[str, Any],
    labels: Sequence[Sequence[str]],
    causes: Mapping[str, str],
    per_ns: float,
) -> set[str]:
    """The lanes of a step; returns their tones."""
    lanes = {
        kind: [lane for lane in step["lanes"] if lane["kind"] == kind] for kind in ("gpu", "other")
    }
    on_host = [lane for lane in step["lanes"] if lane["kind"] not in ("gpu", "other", "idle")]
    idle = [lane for lane in step["lanes"] if lane["kind"] == "idle"]
    tones: set[str] = set()
    for lane in (*on_host, *idle, *lanes["gpu"]):
        tall = _IDLE_LANE if lane["kind"] == "idle" else _LANE
        y = picture.height
        name = f"{lane['name']}{'' if lane['kind'] == 'gpu' else ', '}{lane['of']}"
        if lane["kind"] == "idle":
            name = "GPU, busy and idle"
        picture.text(_MARGIN, y + tall / 2 + 4, _cut(name, _NAMES + 6), "small")
        picture.add("rect", x=_LEFT, y=y, width=_RIGHT - _LEFT, height=tall, class_="track")
        spans = list(_spans(lane, labels))
        if lane["kind"] == "idle":
            busy = (("busy", begin, end) for begin, end in _union(lanes["gpu"]))
            spans = [*busy, *spans, *(s for each in lanes["other"] for s in _spans(each, labels))]
        least = 0.0 if lane["kind"] in ("gpu", "idle") else 1 / tall
        for tone, bars in _bars(spans, per_ns, y, tall, least):
            picture.bars(tone, bars)
            tones.add(tone)
        _labels(picture, lane, labels, causes, y, tall, per_ns)
        picture.height += tall + _SPACE
    return tones


def _tone(lane: Mapping[str, Any], kind: str) -> str:
    return kind if lane["kind"] in ("idle", "other") else _TONES.get(kind, lane["kind"])


def _spans(
    lane: Mapping[str, Any], labels: Sequence[Sequence[str]]
) -> Iterator[tuple[str, int, int]]:
    """Tone, begin and end of each interval of a lane."""
    for start, duration, label in zip(lane["start"], lane["duration"], lane["label"]):
        yield _tone(lane, labels[label][1]), start, start + duration


def _bars(
    spans: Iterable[tuple[str, int, int]], per_ns: float, y: float, tall: float, least: float
) -> Iterator[tuple[str, list[tuple[float, float, float, float]]]]:
    """By tone, the bars that fill each pixel column by the share of its time that the tone takes,
    from the bottom up; `least`: the share that is always drawn."""
    filled = [0.0] * (_RIGHT - _LEFT)
    for tone, shares in _shares(spans, per_ns).items():
        ends = [
            (below, min(below + max(round(share, 3), least), 1.0) if share else below)
            for share, below in zip(shares, filled)
        ]
        bars, x = [], float(_LEFT)
        for (low, high), columns in groupby(ends):
            wide = float(len(list(columns)))
            if low < high:
                bars.append((x, y + tall * (1 - high), wide, tall * (high - low)))
            x += wide
        filled = [high for _, high in ends]
        yield tone, bars


def _shares(spans: Iterable[tuple[str, int, int]], per_ns: float) -> dict[str, list[float]]:
    """By tone, how much of each pixel column its spans cover."""
    made: dict[str, list[float]] = {}
    for tone, start, end in spans:
        left, right = max(start * per_ns, 0.0), min(end * per_ns, float(_RIGHT - _LEFT))
        covered = made.setdefault(tone, [0.0] * (_RIGHT - _LEFT))
        for at in range(int(left), ceil(right)):
            covered[at] += min(right, at + 1) - max(left, at)
    return made


def _union(lanes: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """When any of these lanes is active."""
    spans = sorted(
        (start, start + duration)
        for lane in lanes
        for start, duration in zip(lane["start"], lane["duration"])
    )
    made: list[tuple[int, int]] = []
    for start, end in spans:
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], end))
        else:
            made.append((start, end))
    return made


def _labels(
    picture: _Picture,
    lane: Mapping[str, Any],
    labels: Sequence[Sequence[str]],
    causes: Mapping[str, str],
    y: float,
    tall: float,
    per_ns: float,
) -> None:
    """Names inside the bars that are wide enough."""
    for start, duration, label in zip(lane["start"], lane["duration"], lane["label"]):
        name, kind, short = labels[label]
        wide = duration * per_ns - 12
        if lane["kind"] == "idle":  # the legend says it, too
            text = causes[kind] if len(causes[kind]) * _LETTER <= wide else ""
        else:
            text = _cut(short or name, wide)
        if not text:
            continue
        x, tone = _LEFT + start * per_ns, _tone(lane, kind)
        is_pattern = tone in _patterns()
        if is_pattern:
            wide = len(text) * _LETTER + 4
            picture.add("rect", x=x + 4, y=y + tall / 2 - 7, width=wide, height=14, class_="paper")
        picture.text(x + 6, y + tall / 2 + 4, text, f"in on-{'paper' if is_pattern else tone}")


def _time_axis(picture: _Picture, per_ns: float) -> None:
    y = picture.height + 2
    picture.line(_LEFT, y, _RIGHT, y, "axis")
    for tick in _ticks((_RIGHT - _LEFT) / per_ns / 1e6):
        x = _LEFT + tick * 1e6 * per_ns
        picture.line(x, y, x, y + 4, "axis")
        picture.text(x, y + 16, f"{tick:g}", "small", "middle")
    picture.text(_MARGIN, y + 16, "time in ms", "small")
    picture.height = y + 32


def _ticks(high: float) -> list[float]:
    """Round values from 0 that divide it into about eight parts."""
    power = 10.0 ** floor(log10(high / 8))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= high / 8)
    return [round(step * at, 12) for at in range(int(high / step * (1 + 1e-9)) + 1)]


# ----------------------------------------------------------------------------- curves


def _curves(picture: _Picture, figure: Figure) -> None:
    """Curves on logarithmic axes, with a bar for the bounds of each point."""
    series, mark = figure.data["series"], figure.data["mark"]
    plot = Plot(
        figure.heading,
        {one["name"]: one["points"] for one in series},
        bounds={one["name"]: one["bounds"] for one in series},
    )
    axes = axes_of(plot, with_bounds=True)
    top, left, right = picture.height + 46, _MARGIN + 56, _RIGHT - 30
    bottom = top + 270

    def x(value: float) -> float:
        return left + 20 + axes.across(value) * (right - left - 20)

    def y(value: float) -> float:
        return bottom - axes.up(value) * (bottom - top)

    picture.text(_MARGIN, picture.height + 16, figure.heading, "strong")
    picture.text(_MARGIN, picture.height + 34, figure.data["y"], "small")
    for tick in axes.y_ticks:
        picture.line(left, y(tick), right, y(tick), "grid")
        picture.text(left - 8, y(tick) + 4, tick_label(tick), "small", "end")
    picture.line(left, bottom, right, bottom, "axis")
    free = 0.0
    for tick in axes.x_ticks:
        picture.line(x(tick), bottom, x(tick), bottom + 5, "axis")
        half = len(tick_label(tick)) * _LETTER / 2
        if x(tick) - half >= free:
            picture.text(x(tick), bottom + 19, tick_label(tick), "small", "middle")
            free = x(tick) + half + 6
    picture.text(right, bottom + 36, figure.data["x"], "small", "end")
    if mark is not None:
        at, is_right = x(mark[0]), x(mark[0]) > (left + right) / 2
        picture.line(at, top, at, bottom, "dash")
        picture.text(
            at + (-6 if is_right else 6), top - 6, mark[1], "small", "end" if is_right else "start"
        )
    for number, one in enumerate(series):
        tone, dashes = _SERIES[number % len(_SERIES)]
        picture.use(tone)
        points = [(x(value), y(ms)) for value, ms in one["points"]]
        route = "L".join(f"{_short(px)} {_short(py)}" for px, py in points)
        picture.add(
            "path", d=f"M{route}", class_=f"line s-{tone}", stroke_dasharray=dashes or "none"
        )
        for (px, _), (low, high) in zip(points, one["bounds"]):
            if 0 < low < high:
                bar = f"M{_short(px)} {_short(y(low))}V{_short(y(high))}"
                ends = "".join(f"M{_short(px - 4)} {_short(y(end))}h8" for end in (low, high))
                picture.add("path", d=bar + ends, class_=f"s-{tone}", stroke_width=1.5)
        for px, py in points:
            picture.add("path", d=_sign(number, px, py), class_=f"point f-{tone}")
    picture.height = bottom + 44
    place = float(left)
    for number, one in enumerate(series):
        tone = _SERIES[number % len(_SERIES)][0]
        picture.add(
            "path", d=_sign(number, place + 5, picture.height - 12), class_=f"point f-{tone}"
        )
        picture.text(place + 16, picture.height - 8, one["name"])
        place += 40 + len(one["name"]) * _LETTER


def _sign(number: int, x: float, y: float) -> str:
    """A circle, a square, a triangle, ...: a curve is known by its shape."""
    signs = ("m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z", "m-4 -4h8v8h-8z", "m0 -6l6 10h-12z")
    return f"M{_short(x)} {_short(y)}{signs[number % 3]}"


# ---------------------------------------------------------------------------- details


def _cut(text: str, wide: float) -> str:
    """The text with an ellipsis where it is wider than this; empty if little would be left."""
    most = int(wide / _LETTER)
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…" if most >= _FEWEST_LETTERS else ""


def _short(value: object) -> str:
    """A coordinate to a hundredth of a pixel; other values as text."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


@cache
def _palette() -> dict[str, tuple[str, str]]:
    """Colors of the page by name, light and dark."""
    return {
        name or same: (light or both, dark or both)
        for name, light, dark, same, both in _PAIR.findall(page_file("page.css"))
    }


@cache
def _patterns() -> dict[str, str]:
    """Lines in a tile of 8 x 8 pixels, by tone, for those who do not see the difference."""
    return dict(_PATTERN.findall(page_file("page.js")))


REPORTER = Reporter("svg", (".svg",), {Profile: render, Comparison: render}, in_ascii=in_ascii)
