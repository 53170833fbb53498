"""Makes the pictures of reports in docs/pictures: `python -m docs.make_pictures`."""

from __future__ import annotations

import io
import re
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
from rich.text import Text

from launchscope.cli import main
from launchscope.model import Profile
from launchscope.report import RenderOptions, render
from launchscope.workflows.load_input import ReadOptions, profile_of
from tests.report.browser import browser

ROOT = Path(__file__).parents[1]
RECORDING = ROOT / "sample_workloads" / "recordings" / "small_gpt"
PICTURES = ROOT / "docs" / "pictures"
WIDTHS, MARGIN = {"report": 1200, "report-narrow": 360}, 16
COLUMNS = (80, 100, 200)
THEMES = {"": DEFAULT_TERMINAL_THEME, "-dark": SVG_EXPORT_THEME}
_END_OF_TIMELINE = "document.querySelector('figure.timeline').getBoundingClientRect().bottom"


def make_pictures(to: Path = PICTURES) -> None:
    """Writes, light and dark, the page down to its timeline, wide and narrow (report*.png), and the
    terminal's report (terminal-*.svg). Needs Chromium."""
    profile = profile_of(RECORDING, ReadOptions(threshold=15.0, expected_steps=None))
    for columns in COLUMNS:
        for suffix in THEMES:
            drawn = _terminal(profile, columns, suffix)
            (to / f"terminal-{columns}{suffix}.svg").write_text(drawn, encoding="utf-8")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Chromium writes late
        report = Path(folder, "report.html")
        with report.open("w", encoding="utf-8") as stdout, redirect_stdout(stdout):
            assert main(["report", str(RECORDING), "-f", "html"]) == 0
        with browser(Path(folder)) as page:
            for name, width in WIDTHS.items():
                for dark in (False, True):
                    page.show(report, width, dark=dark)
                    height = int(page.drawn(_END_OF_TIMELINE)) + MARGIN
                    page.show(report, width, height, dark=dark)
                    page.drawn("true")
                    page.picture(to / f"{name}{'-dark' if dark else ''}.png", whole=False)
                    assert not page.errors


def _terminal(profile: Profile, columns: int, suffix: str) -> str:
    """The report as a terminal of this width shows it, with the fonts of the viewer."""
    options = RenderOptions(
        width=columns, color=True, brief=True, next_commands=("launchscope rules LS001",)
    )
    console = Console(record=True, width=columns, file=io.StringIO())
    console.print(Text.from_ansi(str(render(profile, "terminal", options))))
    drawn = console.export_svg(
        title=f"{columns} columns", theme=THEMES[suffix], unique_id="terminal"
    )
    return re.sub(r"@font-face {.*?}", "", drawn, flags=re.DOTALL)  # it would load one


if __name__ == "__main__":
    make_pictures()
