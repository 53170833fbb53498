"""What the site has beside the pages: the gallery of the recordings, and files of the repository
that pages link to. mkdocs calls the functions named `on_...`."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from launchscope.report import render
from launchscope.report.documents.labels import answer
from launchscope.workflows.load_input import ReadOptions, profile_of

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "sample_workloads" / "recordings"
START = "get-started.md"
_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)#]+)\)")
_HEADING = """# Gallery

Sample workloads of the repository, recorded on a GPU. Each report is a page of its own, with a
timeline of an iteration, and is made from the recording when this site is built.

<div class="grid cards" markdown>
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    start = files.get_file_from_path(START)
    assert start is not None
    start.dest_uri = start.url = "index.html"
    cards = []
    for recording in sorted(RECORDINGS.iterdir()):
        profile = profile_of(recording, ReadOptions(threshold=15.0, expected_steps=None))
        assert profile.verdict is not None
        report = f"reports/{recording.name}.html"
        html = str(render(profile, "html"))
        files.append(File.generated(config, report, content=html))
        label, _ = answer(profile)
        head = f"-   **[{recording.name}]({report})**: {label}"
        cards.append(f"{head}\n\n    {profile.verdict.headline}\n")
    gallery = "\n".join([_HEADING, *cards, "</div>\n"])
    files.append(File.generated(config, "gallery.md", content=gallery))
    for path in _linked(files):
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, _copy(path), content=text))
    return files


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A link to a file outside docs/ leads to its copy; one to a folder becomes its text."""

    def inside(link: re.Match[str]) -> str:
        text, path = link.groups()
        return f"[{text}]({_copy(path)})" if (ROOT / path).is_file() else text

    return _OUTSIDE.sub(inside, markdown)


def _linked(files: Files) -> list[str]:
    """The files outside docs/ that its pages link to."""
    pages = [file.content_string for file in files.documentation_pages()]
    paths = {path for text in pages for _, path in _OUTSIDE.findall(text)}
    return sorted(path for path in paths if (ROOT / path).is_file())


def _copy(path: str) -> str:
    return f"repository/{path.lstrip('.')}.txt"  # as text: no page and nothing that runs
