"""Makes the pictures of reports in docs/pictures: `python -m docs.make_pictures`."""

from __future__ import annotations

import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from launchscope.cli import main
from launchscope.report import render
from launchscope.workflows.load_input import ReadOptions, profile_of
from tests.report.browser import browser

ROOT = Path(__file__).parents[1]
RECORDING = ROOT / "sample_workloads" / "recordings" / "small_gpt"
PICTURES = ROOT / "docs" / "pictures"
WIDTH, MARGIN = 1200, 16
_END_OF_TIMELINE = "document.querySelector('figure.timeline').getBoundingClientRect().bottom"


def make_pictures(to: Path = PICTURES) -> None:
    """Writes report.png and report-dark.png, the page down to its timeline, and timeline.svg. Needs
    Chromium."""
    profile = profile_of(RECORDING, ReadOptions(threshold=15.0, expected_steps=None))
    (to / "timeline.svg").write_text(str(render(profile, "svg")), encoding="utf-8")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Chromium writes late
        report = Path(folder, "report.html")
        with report.open("w", encoding="utf-8") as stdout, redirect_stdout(stdout):
            assert main(["report", str(RECORDING), "-f", "html"]) == 0
        with browser(Path(folder)) as page:
            for name, dark in (("report.png", False), ("report-dark.png", True)):
                page.show(report, WIDTH, dark=dark)
                page.show(report, WIDTH, int(page.drawn(_END_OF_TIMELINE)) + MARGIN, dark=dark)
                page.drawn("true")
                page.picture(to / name, whole=False)
                assert not page.errors


if __name__ == "__main__":
    make_pictures()
