"""Names that try to act on what shows them, and values in which every name is one of them."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator, Mapping
from functools import cache
from string import ascii_lowercase
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from launchscope.visible import visible
from tests.rules.profiles import profile, rehearsal

T = TypeVar("T")

# Each of them acts on some terminal, log, spreadsheet, Markdown page or browser.
NASTY = (
    "\x1b]52;c;ZXZpbA==\x07", "\x1b]0;title\x1b\\", "\x1b[2J\x1b[H", "\x1b[31m", "\x1bc",
    "\x1bP+q\x1b\\", "\x9b2J", "\x9d0;title\x9c", "\x90q\x9c", "\x85", "\r", "\n", "\r\n", "\t",
    "\v", "\f", "\b\b\b", "\x07", "\x00", "\x0e", "\x7f", "\u2028", "\u2029", "\u202eevil\u202c",
    "\u2066\u2069", "\u200b", "\u200d", "\ufeff", "\u00ad", "\u034f", "\u3164", "\ufe0f",
    "\U000e0041", "\ufffe", "\ud800", "\udc9b", "\udce9", "\udfff", "::stop-commands::x",
    "\n::error::x", "  ::add-mask::x", "##[command]x", "##vso[task.setvariable]x", "%0A::error::x",
    "=1+1", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", " =1", '=HYPERLINK("http://e.com")', "`",
    "``", "```", "````", "~~~", "\n```\n# h\n", "|", "\\|", "\\\\|", "\\", "**", "__", "~~", "$x$",
    "# h", "- l", "+ l", "1. l", "1) l", "---", "===", "> q", "    code", "[x](http://e.com)",
    "![x](x.png)", "[x](javascript:alert(1))", "[^1]", "[ ]", "<http://e.com>", "http://e.com",
    "HTTPS://e.com", "www.e.com", "ftp://e.com", "mailto:a@e.com", "a@e.com", "xmpp:a@e.com",
    "@octocat", "@org/team", "#12", "GH-12", "o/r#1", ":smile:", ":100:", "CVE-2024-1", "&lt;b&gt;",
    "&#64;octocat", "&copy;", "<b>", "</b>", "<!--", "-->", "<img src=x onerror=top.hit=1>",
    "<script>top.hit=1</script>", "</script><script>top.hit=1//", "</style><svg onload=top.hit=1>",
    "</title><script>top.hit=1</script>", '" onmouseover="top.hit=1', "'", '"',
    "javascript:top.hit=1", "{{ 7*7 }}", "{% raw %}", "]]>", "<?x?>", "<![CDATA[",
    "../../etc/passwd", "file:///etc/passwd", "%2e%2e/", "a b", "é", "学習", "/abs/olute.py",
    "C:\\x.py", "x.py:12", " ", "", "_www.e.com", "_mailto:a@e.com", "~bug", '~"a b"', "%1",
    '%"v1"', "[issue:1]", "a;=1+1", "; @SUM(1)", "＝1+1", "\u2800=1", "\u0301", "a" + "\u0301" * 9,
    "$(x)$", "/v/site-packages/../../etc/passwd", "/v/site-packages//etc/x.py",
    "/v/site-packages/..", "a](b)](c)", "\\[x](http://e.com)", "##teamcity[x", "שלום", "-x",
    'x;"=1+1;', '"=1', "www", "a www.", "##vso[x", "\u1160\u1161", "\U00016fe4", "\U0001d159",
    "a" + "\u0903" * 9, "\u1100" + "\u11a8" * 9, "--- x", "+++ x", "~~~ x", "^^^ x",
    "/close", "$`x`$", "$", "GL-12", '*iteration:"x"', "*iteration:4",
    "[[ATTACHMENT|/etc/passwd]]",
)  # fmt: skip

_KEPT = ("schema",)
# Keys that reports look for: of metrics, of the details of a reason, of parameters.
_KNOWN = {
    *(key for make in (profile, rehearsal) for key in make().metrics),
    *("module", "names", "batch_size"),
}


def filled(value: T, names: tuple[str, ...]) -> T:
    """The value with one of these names for each text that is no code of the model's; a key of a
    mapping keeps its own text behind the name. The schema and the metrics' names stay."""
    return cast("T", _filled(value, type(value), itertools.cycle(names)))


def harmless(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names as long as these are shown, because some lengths decide where a text goes, and equal
    where these are, because codes are looked up."""
    shown = [visible(name) for name in names]
    letters = dict(zip(dict.fromkeys(shown), itertools.cycle(ascii_lowercase)))
    return tuple(letters[name] * len(name) if name.strip() else name for name in shown)


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _fits(value: object, hint: Any) -> bool:
    kind = get_origin(hint) or hint
    return kind is not Literal and isinstance(value, kind)


def _filled(value: Any, hint: Any, names: Iterator[str]) -> Any:
    kind: type = type(value)
    if get_origin(hint) in (Union, types.UnionType):
        fitting = [h for h in get_args(hint) if _fits(value, h)]
        return _filled(value, fitting[0], names) if fitting and value is not None else value
    if hasattr(kind, "__match_args__") and not isinstance(value, type):
        new = {
            name: own if name in _KEPT else _filled(own, _hints(kind)[name], names)
            for name in kind.__match_args__
            for own in [getattr(value, name)]
        }
        return kind(**new)
    if hint is str:
        return next(names)
    if isinstance(value, tuple):
        inner = get_args(hint)
        hints = [inner[0]] * len(value) if inner[1:] == (Ellipsis,) else inner
        return tuple(_filled(item, own, names) for item, own in zip(value, hints))
    if isinstance(value, Mapping):
        new_keys = [key if key in _KNOWN else f"{next(names)}{key}" for key in value]
        items = (_filled(item, get_args(hint)[1], names) for item in value.values())
        return dict(zip(new_keys, items))
    return value
