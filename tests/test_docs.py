"""README.md and docs/: links lead somewhere, launchscope takes the commands, reports are real."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.core import TyperCommand

from docs.make_pictures import PICTURES, make_pictures
from docs.make_schemas import SCHEMAS, make_schemas
from launchscope.cli import main
from launchscope.gate.metrics import UNITS
from tests.benchmarks.samples import markdown, profile_of, row_of
from tests.report.browser import needs_browser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
RECORDINGS = ROOT / "sample_workloads" / "recordings"
_FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_LINK = re.compile(r'(?:\]\(|src="|srcset=")(?P<target>[^)"\s]+)')
_COMMAND = re.compile(r"^(?:\$ |\s*(?:- )?(?:run: )?)launchscope (\w.*)$", re.M)
_IN_A_TABLE = re.compile(r"^\| `(launchscope [^`]+)`", re.M)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", found.lower()).replace(" ", "-") for found in headings}


def links(page: Path) -> list[str]:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return [found for found in _LINK.findall(text) if "://" not in found]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    for link in links(page):
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        assert path.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(path), link


def test_a_page_that_a_message_names_exists() -> None:
    sources = [*(ROOT / "launchscope").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    named = set(re.findall(r"launchscope docs ([a-z][a-z-]*)", text))
    assert "get-started" in named
    assert named - {"lists"} <= {page.stem for page in DOCS.glob("*.md")}


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    readme = ROOT / "README.md"
    shown, _, folded = readme.read_text(encoding="utf-8").partition("<details>")
    assert len(shown + folded.partition("</details>")[2]) < 8000
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(readme)}
    assert set(DOCS.glob("*.md")) <= linked


def test_the_pages_have_at_most_13000_words() -> None:
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in DOCS.glob("*.md")) <= 13000


@pytest.mark.child
@needs_browser
def test_the_pictures_can_be_made_again(tmp_path: Path) -> None:
    make_pictures(tmp_path)
    made = {picture.name for picture in tmp_path.iterdir()}
    assert made == {picture.name for picture in PICTURES.iterdir()}
    for picture in [*PICTURES.iterdir(), *tmp_path.iterdir()]:
        assert picture.stat().st_size < 300_000


def test_the_schemas_are_those_of_the_values(tmp_path: Path) -> None:
    make_schemas(tmp_path)
    made, published = ({p.name: p.read_text() for p in f.iterdir()} for f in (tmp_path, SCHEMAS))
    assert made == published, "run python -m docs.make_schemas"


def test_the_report_in_the_readme_is_what_its_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    at = text.index("launchscope report sample_workloads")
    words = shlex.split(text[at : text.index("\n", at)])
    assert main(words[1:]) == 0
    reports = [capsys.readouterr().out, *(found["text"] for found in _FENCED.finditer(text))]
    # How many findings there are besides is a matter of the rules.
    printed, *shown = (re.sub(r"\d+ findings", "findings", each.strip("\n")) for each in reports)
    assert printed in shown


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_launchscope_takes_the_commands_of_a_page(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(TyperCommand, "invoke", lambda *_: 0)  # parsed, not run
    text = page.read_text(encoding="utf-8")
    shown = [*(found["text"] for found in _FENCED.finditer(text)), *_IN_A_TABLE.findall(text)]
    for line in _COMMAND.findall("\n".join(shown)):
        assert main(shlex.split(line, comments=True)) == 0, (line, capsys.readouterr().err)


def test_the_table_of_samples_is_made_from_the_recordings() -> None:
    names = sorted(path.name for path in RECORDINGS.iterdir())
    table = markdown([row_of(name, profile_of(RECORDINGS / name)) for name in names])
    shown = ROOT / "tests" / "benchmarks" / "results" / "samples.md"
    assert shown.read_text(encoding="utf-8").endswith(f"\n\n{table}\n")


def test_every_metric_is_explained() -> None:
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    text = page[page.index("## Metrics") : page.index("## Rules")]
    cells = re.findall(r"^\| (`.*?) \| (.+) \|$", text, re.M)
    explained = [name for names, _ in cells for name in re.findall(r"`(\w+)`", names)]
    assert sorted(explained) == sorted(UNITS)
