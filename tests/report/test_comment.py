"""The comment for a pull request: short, found again by its first line, and inert."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from launchscope.model import Change, CheckResult, SourceLine
from launchscope.report import render, reporter_named
from launchscope.report.comment import MARKER
from tests.gate.profiles import failed_on_gpu
from tests.report.hostile import NASTY, endless, filled, harmless
from tests.report.test_golden import VALUES
from tests.report.test_hostile_names import _LIVE, _OWN

SHOWN = sorted(
    name for name, make in VALUES.items() if type(make()) in reporter_named("comment").renders
)
_MARKDOWN = MarkdownIt("gfm-like")
assert _MARKDOWN.linkify is not None
_MARKDOWN.linkify.set({"fuzzy_link": False})


def comment(value: object) -> str:
    made = render(value, "comment")
    assert isinstance(made, str)
    return made


def blocks(text: str) -> list[tuple[str, str, str]]:
    """The blocks of the page, with the text of those that are HTML; fails for anything in their
    lines that a name could have brought."""
    tokens = _MARKDOWN.parse(text)
    for token in tokens:
        for child in token.children or ():
            assert child.type in _OWN, (child.type, token.content)
            assert not (child.type.startswith("text") and _LIVE.search(child.content))
    return [(t.type, t.tag, t.content if t.type == "html_block" else "") for t in tokens]


@pytest.mark.parametrize("name", SHOWN)
def test_the_first_line_is_the_marker_and_the_answer_follows(name: str) -> None:
    lines = comment(VALUES[name]()).split("\n")
    assert lines[0] == MARKER == "<!-- launchscope -->"
    assert lines[2].startswith("### ")
    assert lines[4].startswith("**")


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("names", [NASTY, NASTY[::-1]], ids=["nasty", "reversed"])
def test_names_make_no_block_link_or_mention(name: str, names: tuple[str, ...]) -> None:
    made, calm = (
        blocks(comment(filled(VALUES[name](), endless(given))))
        for given in (names, harmless(names))
    )
    assert made == calm
    html = [content.strip() for kind, _, content in made if kind == "html_block"]
    assert html == [MARKER, "<details><summary>Details</summary>", "</details>"]


def test_limits_that_passed_unchanged_are_only_in_the_details() -> None:
    short, _, details = comment(failed_on_gpu()).partition("<details>")
    assert "`launches_per_step`" in short
    assert "`syncs_per_step`" not in short
    assert "`syncs_per_step`" in details


def many(count: int, length: int) -> CheckResult:
    name = "@me <b> [a](http://e.com) " * (length // 26)
    changes = tuple(
        Change("op", f"{name}{i}", 0, 1, (SourceLine(f"{name}.py", i),)) for i in range(count)
    )
    return replace(failed_on_gpu(), changes=changes)


@pytest.mark.parametrize(("count", "length"), [(5000, 30), (40, 3000), (12, 40_000)])
def test_a_comment_is_never_longer_than_github_takes(count: int, length: int) -> None:
    made = comment(many(count, length))
    assert len(made) <= 65_536
    assert made.startswith(MARKER)
    assert made.count("<details>") == made.count("</details>")
    blocks(made)
    assert "@me" not in re.sub(r"`[^`]*`", "", made)


def test_what_does_not_fit_is_said() -> None:
    made = comment(many(40, 6000))
    assert made.endswith("\n\nThe rest does not fit into a comment.\n")
    assert "launches\\_per\\_step rose" in made
    assert comment(replace(failed_on_gpu(), headline="x" * 70_000)).count("\n") < 9
