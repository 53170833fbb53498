"""A value in three lines, for a Python prompt: the answer, how it is known, what to do next."""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.report import with_texts
from launchscope.report.documents import DOCUMENTS
from launchscope.report.documents.next_step import adapter, adopt_commands
from launchscope.visible import visible, without_commands


def summary(value: object) -> str:
    """Three lines, without a line break at the end."""
    value = with_texts(value, visible)
    document = DOCUMENTS[type(value)](value, 1)
    second = document.basis or document.title
    steps: tuple[str, ...] = ()
    if isinstance(value, Profile):
        commands = (f"`{one}` makes and checks the change." for one in adopt_commands(value))
        known = adapter(value)
        using = () if known is None else (f"{known}.",)
        steps = (
            *using,
            *commands,
            *(value.verdict.instructions if value.verdict is not None else ()),
        )[:1]
    following = " ".join((*steps, 'save("report.html") writes the whole report.'))
    text = f"{document.badge}  {document.headline}\n{second}\nNext: {following}"
    return without_commands(text)  # a script may print it in CI
