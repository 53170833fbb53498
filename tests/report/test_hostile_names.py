"""No name acts on what shows it: each format is read back by what people read it with."""

from __future__ import annotations

import csv
import html
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import msgspec
import pyte
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace
from sarif_pydantic import Sarif

from launchscope.cli.console import Console
from launchscope.model import SourceLine
from launchscope.report import RenderOptions, all_reporters, render, with_texts
from launchscope.report.markdown import prose
from launchscope.visible import (
    encodable,
    in_encoding,
    is_utf_8,
    visible,
    without_commands,
)
from tests.report import adoptions, others
from tests.report.browser import BROWSER, FLAGS, needs_browser
from tests.report.hostile import NAMES, NASTY, endless, filled, harmless
from tests.report.test_golden import VALUES

pytestmark = pytest.mark.slow

EXAMPLES = settings(
    max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
SAMPLES = {name: make() for name, make in VALUES.items() if name != "gpu_bound"}
SAMPLES["ranks.merged"] = others.merged()
_COLOR = re.compile(r"\033\[[\d;]*m")

Names = tuple[str, ...]


CHECKS: list[Callable[[Names, Names], None]] = []


def hostile_values(check: Callable[[Names, Names], None]) -> Callable[[Names, Names], None]:
    """A check of what names may do in these samples."""
    CHECKS.append(check)
    return check


def rendered(name: str, names: Names, format_name: str, **options: Any) -> str:
    value = filled(SAMPLES[name], endless(names))
    made = render(value, format_name, RenderOptions(**options))
    return made.decode() if isinstance(made, bytes) else made


def shown_by(format_name: str, samples: Names) -> list[str]:
    (reporter,) = [found for found in all_reporters() if found.name == format_name]
    return [name for name in samples if type(SAMPLES[name]) in reporter.renders]


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class _Spy:
    """Keeps what a stream asks of its screen."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: self.seen.add(name)


def asked_of_a_terminal(text: str) -> set[str]:
    spy = _Spy()
    pyte.Stream(cast("pyte.Screen", spy)).feed(text)
    return spy.seen


def shown_by_a_terminal(text: str, width: int) -> list[str]:
    """The screen after the text; nothing but characters, colors and line ends may be in it."""
    text = text.replace("\n", "\r\n")
    screen = pyte.Screen(width + 8, text.count("\n") + 1)
    allowed = {"draw", "linefeed", "carriage_return", "select_graphic_rendition"}
    assert asked_of_a_terminal(text) <= allowed
    pyte.Stream(screen).feed(text)
    assert (screen.title, screen.icon_name) == ("", "")
    return [line.rstrip() for line in screen.display]


def test_what_is_visible_is_one_printable_line_and_stays_as_it_is() -> None:
    for name in NASTY:
        seen = visible(name)
        assert visible(seen) == seen
        seen.encode()
        assert all(sign.isprintable() for sign in seen)
    for plain in (
        "train.py",
        "at::native::<int, 4>(float*)",
        "学習 データ.py",
        "naïve – 9.0 ± 0.1",
    ):
        assert visible(plain) == plain
    assert visible("a\x1b]0;b\x07\n\u202e\udce9") == "a\\x1b]0;b\\x07\\n\\u202e\\xe9"


ENCODINGS = ("ascii", "cp1252", "gb18030", "shift_jis", "iso2022_jp")


def test_a_stream_that_is_not_utf_8_gets_ascii() -> None:
    for encoding in ENCODINGS:
        assert in_encoding("é – ›", encoding) == "\\xe9 \\u2013 \\u203a"
    assert is_utf_8("UTF8")
    assert not any(map(is_utf_8, (*ENCODINGS, None)))
    assert in_encoding("›学\udc9b\n", "utf8") == "›学\\x9b\n"


@hostile_values
def a_terminal_shows_the_report_and_does_nothing_else(names: Names, samples: Names) -> None:
    for name in samples:
        for width, color in ((60, False), (100, True)):
            text = rendered(name, names, "terminal", width=width, color=color, next_commands=names)
            plain = _COLOR.sub("", text)
            lines = plain.split("\n")
            assert [visible(line) for line in lines] == lines
            if not re.search("[^\0-ɏ─-◿–-…→]", plain):  # emulators differ about other widths
                wide = max(map(len, lines))  # of a command, which stays one line
                assert shown_by_a_terminal(text, wide) == [line.rstrip() for line in lines]
        assert rendered(name, names, "terminal", unicode=False).isascii()


@hostile_values
def no_line_of_ours_is_a_command_in_ci(names: Names, samples: Names) -> None:
    # What a service starts hides its variables (tox), or gives us a terminal, too (a container).
    for environ, stream in (
        ({"GITHUB_ACTIONS": "true", "FORCE_COLOR": "1"}, StringIO),
        ({}, StringIO),
        ({}, _Terminal),
    ):
        out, err = stream(), stream()
        console = Console(out, err, environ)
        for format_name in ("terminal", "markdown", "csv", "junit", "sarif", "json", "html"):
            for name in shown_by(format_name, samples)[-2:]:
                console.out(rendered(name, names, format_name, width=60))
        for name in names:
            console.message(name)
            console.note(name)
            console.error(name, hint=name)
            console.beside(f"Traceback:\n{name}\n")
        lines = _COLOR.sub("", out.getvalue() + err.getvalue()).splitlines()
        assert [line for line in lines if line.lstrip().startswith("::")] == []
        assert [line for line in lines if re.search(r"##\w*\[", line)] == []
        assert [line for line in lines if re.match(r"(---|\+\+\+|~~~|\^\^\^)(\s|$)", line)] == []
        assert all(visible(line) == line for line in lines)


def test_a_command_is_escaped_where_it_would_be_read_as_one_and_nowhere_else() -> None:
    given = "::a\n  ::b\n\033[1m::c\nat::d ##[e]##vso[f] ## g ##teamcity[h]"
    assert without_commands(given) == (
        r"\x3a:a@  \x3a:b@#\x3a:c@at::d \x23#[e]\x23#vso[f] ## g \x23#teamcity[h]"
    ).replace("@#", "\n\033[1m").replace("@", "\n")
    given = "--- a\n+++ b\n~~~ c\n\033[1m--- d\n---\n  --- e\n----\n| --- |\n---f"
    assert without_commands(given) == (
        r"\x2d-- a@\x2b++ b@\x7e~~ c@#\x2d-- d@\x2d--@  --- e@----@| --- |@---f"
    ).replace("@#", "\n\033[1m").replace("@", "\n")


@hostile_values
def an_annotation_is_one_line(names: Names, samples: Names) -> None:
    for name in shown_by("github", samples):
        lines, calm = (
            rendered(name, given, "github").splitlines() for given in (names, harmless(names))
        )
        assert len(lines) == len(calm)
        for line in lines:
            assert not re.search(r"##\w*\[", line)
            assert re.match(r"::(error|warning|notice) [^:\r\n]*title=[^:,]*::[^\r\n]*$", line)


# --------------------------------------------------------------------------- Markdown

_MARKDOWN = MarkdownIt("gfm-like")
assert _MARKDOWN.linkify is not None
_MARKDOWN.linkify.set({"fuzzy_link": False})  # as GitHub: `train.py` is no site in Paraguay
_OWN = {"text", "text_special", "code_inline", "strong_open", "strong_close"}
# What GitHub makes a link or a picture of in text, wherever it comes from.
_LIVE = re.compile(
    r"@\w|(?<!\w)#\d|\w#\d|(?a:\b)G[HL]-\d|:[\w+-]+:|https?://|(?<![^\W_])www\.|ftp://|mailto:\w|(?<![^\W_])CVE-\d"
    r"|~[a-z\"]|\*iteration:|%[\w\"]|\[\w+:|\$(?![\s\u200b])",
    re.IGNORECASE,
)


def structure(text: str) -> list[tuple[str, str, int]]:
    """The blocks of a Markdown text; fails for anything in them that the reports do not have."""
    tokens = _MARKDOWN.parse(text)
    lines = text.split("\n")
    for token in tokens:
        if token.type == "inline" and token.map is not None:  # no command in a comment
            assert not [line for line in lines[slice(*token.map)] if line.lstrip().startswith("/")]
        for child in token.children or ():
            assert child.type in _OWN, (child.type, token.content)
            if child.type.startswith("text"):
                assert not _LIVE.search(child.content), child.content
        assert token.type != "html_block"
    return [(token.type, token.tag, token.level) for token in tokens]


@hostile_values
def markdown_has_the_blocks_that_harmless_names_have(names: Names, samples: Names) -> None:
    for name in samples:
        text = rendered(name, names, "markdown", next_commands=names)
        calm = harmless(names)
        assert structure(text) == structure(rendered(name, calm, "markdown", next_commands=calm))


def test_a_command_is_copied_whole_whatever_names_are_in_it() -> None:
    undo, follows = "git checkout -- 'a``b `c`.py'", "launchscope adopt '`d`.py'"
    adoption = replace(adoptions.verified(), undo=undo)
    options = RenderOptions(width=100, next_commands=(follows,))
    report = str(render(adoption, "markdown", options))
    fences = [t.content.strip() for t in _MARKDOWN.parse(report) if t.type == "fence"]
    assert fences[-2:] == [undo, follows]
    shown = str(render(adoption, "terminal", options)).splitlines()
    assert {f"  {undo}", f"  {follows}"} <= set(shown)
    page = html.unescape(str(render(adoption, "html", options)))
    assert f"<code>{undo}</code>" in page
    assert f"<code>{follows}</code>" in page


def test_a_block_of_markdown_begins_with_no_command_of_a_code_host() -> None:
    assert prose("/merge `now`") == "\\/merge `now`"
    assert prose("3/4 of it, 5 $ and `a`") == "3/4 of it, 5 \\$ and `a`"


# ------------------------------------------------------- what other programs read


@hostile_values
def no_text_of_a_csv_file_is_a_formula(names: Names, samples: Names) -> None:
    for name in shown_by("csv", samples):
        text = rendered(name, names, "csv")
        header, *rows = csv.reader(StringIO(text))
        assert len(rows) == len(text.splitlines()) - 1
        for row in rows:
            assert len(row) == len(header)
            for cell in row:
                assert not re.search(r"(^|;)\s*[=+@＝＋－＠\t\r-]", cell) or float(cell) < 0
        # As a spreadsheet reads it where semicolons separate cells.
        for row in csv.reader(StringIO(text), delimiter=";"):
            for cell in row:
                assert not re.match(r'[\s"]*[=+@＝＋－＠\t\r-]', cell)


@hostile_values
def junit_is_xml_with_visible_texts(names: Names, samples: Names) -> None:
    for name in shown_by("junit", samples):
        tree, calm = (
            ET.fromstring(rendered(name, given, "junit")) for given in (names, harmless(names))
        )
        assert [e.tag for e in tree.iter()] == [e.tag for e in calm.iter()]
        for element in tree.iter():
            texts = [*element.attrib.values(), *(element.text or "").splitlines()]
            assert "[[ATTACHMENT" not in "".join(texts)  # no file goes into the report
            assert all(visible(text) == text for text in texts)


def inert(text: str) -> bool:
    """Whether a terminal shows every character of the file, and CI finds no command in it."""
    return not re.search(r"##\w*\[", text) and all(visible(x) == x for x in text.split("\n"))


@hostile_values
def json_is_inert_and_keeps_every_name(names: Names, samples: Names) -> None:
    for name in samples:
        text = rendered(name, names, "json")
        assert inert(text)
        given = filled(SAMPLES[name], endless(names))
        assert msgspec.json.decode(text, type=type(given)) == with_texts(given, encodable)


@hostile_values
def a_file_that_a_program_reads_is_written_as_it_was_made(names: Names, samples: Names) -> None:
    for format_name in ("json", "sarif"):
        for name in shown_by(format_name, samples):
            text = rendered(name, names, format_name)
            assert inert(text)
            assert without_commands(text) == text
    for name in samples:
        page = without_commands(rendered(name, names, "html"))
        (data,) = re.findall(r'<script type="application/json" id="data">(.*)</script>', page)
        json.loads(data)


@hostile_values
def sarif_names_files_of_the_repository_only(names: Names, samples: Names) -> None:
    for name in shown_by("sarif", samples):
        text = rendered(name, names, "sarif", repository=str(Path.cwd()))
        assert inert(text)
        (run,) = Sarif.model_validate_json(text).runs
        for result in run.results or []:
            said = result.message.text or ""
            assert "](" not in said
            assert visible(said) == said
            for location in (*(result.locations or ()), *(result.related_locations or ())):
                assert location.physical_location is not None
                assert location.physical_location.region is not None
                assert (location.physical_location.region.start_line or 0) > 0
                artifact = location.physical_location.artifact_location
                assert artifact is not None
                assert artifact.uri_base_id in ("%SRCROOT%", "%SITEPACKAGES%")
                assert re.fullmatch(r"([\w.~/-]|%[0-9A-F]{2})+", artifact.uri or "", re.ASCII)
                path = unquote(artifact.uri or "")
                assert not path.startswith("/")
                assert path.split("/")[0] != ".."


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("train.py", "sub/train.py"),
        ("../lib/x y.py", "lib/x y.py"),
        ("/home/me/repo/lib/a.py", "lib/a.py"),
        ("../../other/a.py", None),
        ("/home/me/secret/a.py", None),
        ("/venv/lib/python3.12/site-packages/torch/nn.py", None),
    ],
)
def test_a_line_is_named_from_the_root_of_the_repository(
    file: str, named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path.resolve() / "repo"
    (repository / "sub").mkdir(parents=True)
    monkeypatch.chdir(repository / "sub")
    options = RenderOptions(repository=str(repository))
    found = options.in_repository(SourceLine(file.replace("/home/me/repo", str(repository)), 3))
    assert (found and found.file) == named


# ------------------------------------------------------------------------------- HTML


class Tags(HTMLParser):
    """The elements of a page with the names of their attributes. Code has no element of its own
    in this list, because backticks in a name mark code, too; there must be no address."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[tuple[str, ...]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "code":
            self.found.append((tag, *(name for name, _ in attrs)))
        assert not {"href", "src", "action", "data"} & {name for name, _ in attrs}


def pages(names: Names, samples: Names) -> list[str]:
    calm = harmless(names)
    return [
        rendered(name, given, "html", next_commands=given)
        for name in samples
        for given in (names, calm)
    ]


@hostile_values
def html_has_the_elements_that_harmless_names_have(names: Names, samples: Names) -> None:
    found = [Tags(page).found for page in pages(names, samples)]
    assert found[::2] == found[1::2]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_name_that_tries_to_act_is_shown(check: Callable[[Names, Names], None]) -> None:
    check(NASTY, tuple(SAMPLES))


@pytest.mark.campaign
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@EXAMPLES
@given(
    names=st.lists(NAMES, min_size=1, max_size=7).map(tuple),
    samples=st.sampled_from([(name,) for name in SAMPLES]),
)
def test_names_made_of_them_are_shown_too(
    check: Callable[[Names, Names], None], names: Names, samples: Names
) -> None:
    check(NASTY[::-1], samples)
    check(names, samples)


_DRIVER = """<!doctype html><meta charset="utf-8"><title>calm</title><pre id="found"></pre>
<script>
const pages = PAGES, found = []
// what the page's own script gives an element that is too wide, as it drops a text that is
const widths = ["tabindex", "role", "aria-label"]
for (const [at, page] of pages.entries()) {
  const frame = document.createElement("iframe")
  frame.onload = () => {
    found[at] = [...frame.contentDocument.querySelectorAll(":not(code, text)")].map(
      (e) => [e.tagName, ...e.getAttributeNames().filter((a) => !widths.includes(a))].join(" "))
    document.getElementById("found").textContent =
      JSON.stringify({found, hit: window.hit ?? null, title: document.title})
  }
  frame.srcdoc = page
  document.body.append(frame)
}
</script>"""


@pytest.mark.child
@needs_browser
def test_a_browser_runs_no_script_of_a_name(tmp_path: Path) -> None:
    made = pages(NASTY, tuple(SAMPLES))
    source = json.dumps(made).replace("<", "\\u003c")
    (tmp_path / "driver.html").write_text(_DRIVER.replace("PAGES", source), encoding="utf-8")
    assert BROWSER is not None
    ran = subprocess.run(
        [
            *(BROWSER, *FLAGS, "--dump-dom"),
            *(f"--user-data-dir={tmp_path / 'user'}", (tmp_path / "driver.html").as_uri()),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    (result,) = re.findall(r'<pre id="found">(.*?)</pre>', ran.stdout.decode())
    answer = json.loads(result)
    assert (answer["hit"], answer["title"]) == (None, "calm")
    assert len(answer["found"]) == len(made)
    assert all(len(elements) > 20 for elements in answer["found"])
    assert answer["found"][::2] == answer["found"][1::2]
