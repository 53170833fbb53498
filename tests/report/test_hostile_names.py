"""No name acts on what shows it: each format is read back by what people read it with."""

from __future__ import annotations

import csv
import html
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from markdown_it import MarkdownIt
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
from tests.report.hostile import NASTY, filled, harmless
from tests.report.test_golden import VALUES

pytestmark = pytest.mark.slow

SAMPLES = {name: make() for name, make in VALUES.items() if name != "gpu_bound"}
SAMPLES["ranks.merged"] = others.merged()
_COLOR = re.compile(r"\033\[[\d;]*m")

Names = tuple[str, ...]
CALM = harmless(NASTY)


def rendered(name: str, format_name: str, names: Names = NASTY, **options: Any) -> str:
    made = render(filled(SAMPLES[name], names), format_name, RenderOptions(**options))
    return made.decode() if isinstance(made, bytes) else made


def shown_by(format_name: str) -> list[str]:
    (reporter,) = [found for found in all_reporters() if found.name == format_name]
    return [name for name, value in SAMPLES.items() if type(value) in reporter.renders]


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


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
        assert in_encoding("é – ›", encoding) == "\\xe9 - \\u203a"
    assert is_utf_8("UTF8")
    assert not any(map(is_utf_8, (*ENCODINGS, None)))
    assert in_encoding("›学\udc9b\n", "utf8") == "›学\\x9b\n"


@pytest.mark.parametrize("name", SAMPLES)
def test_a_terminal_gets_visible_text_and_colors(name: str) -> None:
    for width, color in ((60, False), (100, True)):
        text = rendered(name, "terminal", width=width, color=color, next_commands=NASTY)
        lines = _COLOR.sub("", text).split("\n")
        assert [visible(line) for line in lines] == lines


# What a service starts hides its variables (tox), or gives us a terminal, too (a container).
@pytest.mark.parametrize(
    ("environ", "stream"),
    [({"GITHUB_ACTIONS": "true", "FORCE_COLOR": "1"}, StringIO), ({}, StringIO), ({}, _Terminal)],
)
def test_no_line_of_ours_is_a_command_in_ci(
    environ: dict[str, str], stream: type[StringIO]
) -> None:
    out, err = stream(), stream()
    console = Console(out, err, environ)
    for format_name in ("terminal", "markdown", "csv", "junit", "sarif", "json", "html"):
        for name in shown_by(format_name)[-2:]:
            console.out(rendered(name, format_name, width=60))
    for name in NASTY:
        console.message(name)
        console.note(name)
        console.error(name, hint=name)
        console.beside(f"Traceback:\n{name}\n")
    lines = _COLOR.sub("", out.getvalue() + err.getvalue()).splitlines()
    for line in lines:
        assert not re.match(r"\s*::|(---|\+\+\+|~~~|\^\^\^)(\s|$)", line)
        assert not re.search(r"##\w*\[", line)
        assert visible(line) == line


def test_a_command_is_escaped_where_it_would_be_read_as_one_and_nowhere_else() -> None:
    given = "::a\n  ::b\n\033[1m::c\nat::d ##[e]##vso[f] ## g ##teamcity[h]"
    assert without_commands(given) == (
        r"\x3a:a@  \x3a:b@#\x3a:c@at::d \x23#[e]\x23#vso[f] ## g \x23#teamcity[h]"
    ).replace("@#", "\n\033[1m").replace("@", "\n")
    given = "--- a\n+++ b\n~~~ c\n\033[1m--- d\n---\n  --- e\n----\n| --- |\n---f"
    assert without_commands(given) == (
        r"\x2d-- a@\x2b++ b@\x7e~~ c@#\x2d-- d@\x2d--@  --- e@----@| --- |@---f"
    ).replace("@#", "\n\033[1m").replace("@", "\n")


def test_an_annotation_is_one_line() -> None:
    for name in shown_by("github"):
        lines = rendered(name, "github").splitlines()
        assert len(lines) == len(rendered(name, "github", CALM).splitlines())
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


@pytest.mark.parametrize("name", SAMPLES)
def test_markdown_has_the_blocks_that_harmless_names_have(name: str) -> None:
    hostile, calm = (
        structure(rendered(name, "markdown", names, next_commands=names)) for names in (NASTY, CALM)
    )
    assert hostile == calm


def test_a_command_is_copied_whole_whatever_names_are_in_it() -> None:
    follows = "launchscope adopt '`d`.py'"
    options = RenderOptions(width=100, next_commands=(follows,))
    report = str(render(adoptions.verified(), "markdown", options))
    fences = [t.content.strip() for t in _MARKDOWN.parse(report) if t.type == "fence"]
    assert fences[-1] == follows
    shown = str(render(adoptions.verified(), "terminal", options)).splitlines()
    assert f"  {follows}" in shown
    page = html.unescape(str(render(adoptions.verified(), "html", options)))
    assert f"<code>{follows}</code>" in page


def test_a_block_of_markdown_begins_with_no_command_of_a_code_host() -> None:
    assert prose("/merge `now`") == "\\/merge `now`"
    assert prose("3/4 of it, 5 $ and `a`") == "3/4 of it, 5 \\$ and `a`"


# ------------------------------------------------------- what other programs read


def test_no_text_of_a_csv_file_is_a_formula() -> None:
    for name in shown_by("csv"):
        text = rendered(name, "csv")
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


def test_junit_is_xml_with_visible_texts() -> None:
    for name in shown_by("junit"):
        tree, calm = (ET.fromstring(rendered(name, "junit", names)) for names in (NASTY, CALM))
        assert [e.tag for e in tree.iter()] == [e.tag for e in calm.iter()]
        for element in tree.iter():
            texts = [*element.attrib.values(), *(element.text or "").splitlines()]
            assert "[[ATTACHMENT" not in "".join(texts)  # no file goes into the report
            assert all(visible(text) == text for text in texts)


@pytest.mark.parametrize("format_name", ["json", "sarif"])
def test_a_file_that_a_program_reads_is_inert_and_written_as_it_was_made(format_name: str) -> None:
    for name in shown_by(format_name):
        text = rendered(name, format_name)
        assert not re.search(r"##\w*\[", text)
        assert all(visible(line) == line for line in text.split("\n"))
        assert without_commands(text) == text


def test_json_keeps_every_name() -> None:
    for sample in SAMPLES.values():
        given = filled(sample, NASTY)
        text = render(given, "json", RenderOptions())
        assert msgspec.json.decode(text, type=type(given)) == with_texts(given, encodable)


def test_sarif_names_files_of_the_repository_only() -> None:
    for name in shown_by("sarif"):
        text = rendered(name, "sarif", repository=str(Path.cwd()))
        (run,) = Sarif.model_validate_json(text).runs
        for result in run.results or []:
            assert "](" not in (result.message.text or "")
            for location in (*(result.locations or ()), *(result.related_locations or ())):
                assert location.physical_location is not None
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


def pages() -> list[str]:
    """Of each sample two: with the names, and with harmless ones."""
    return [
        rendered(name, "html", names, next_commands=names)
        for name in SAMPLES
        for names in (NASTY, CALM)
    ]


def test_html_has_the_elements_that_harmless_names_have_and_data_that_is_json() -> None:
    made = pages()
    found = [Tags(page).found for page in made]
    assert found[::2] == found[1::2]
    for page in made[::2]:
        (data,) = re.findall(
            r'<script type="application/json" id="data">(.*)</script>', without_commands(page)
        )
        json.loads(data)


_DRIVER = """<!doctype html><meta charset="utf-8"><title>calm</title><pre id="found"></pre>
<script>
const pages = PAGES, found = []
// what the page's own script gives an element that is too wide, as it drops a text that is
const widths = ["tabindex", "role", "aria-label", "class"]
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
    made = pages()
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
