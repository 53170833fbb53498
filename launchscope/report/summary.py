"""A value in three lines, for a Python prompt: the answer, its figures, what to look at next."""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.report import with_texts
from launchscope.report.documents import DOCUMENTS
from launchscope.report.documents.labels import NO_TIMES, known_by
from launchscope.report.documents.next_step import adopt_commands
from launchscope.report.documents.profile import is_total
from launchscope.visible import visible, without_commands
from launchscope.wording import plural, sentence, times, with_unit


def summary(value: object) -> str:
    """Three lines, without a line break at the end."""
    value = with_texts(value, visible)
    document = DOCUMENTS[type(value)](value, 1)
    second = document.basis or document.title
    steps: tuple[str, ...] = ()
    if isinstance(value, Profile):
        second = _eager_and_replay(value)
        commands = (f"`{one}` makes and checks the change." for one in adopt_commands(value))
        steps = (*commands, *(value.verdict.instructions if value.verdict is not None else ()))[:1]
    following = " ".join((*steps, 'save("report.html") writes the whole report.'))
    text = f"{document.badge}  {document.headline}\n{second}\nNext: {following}"
    return without_commands(text)  # a script may print it in CI


def _eager_and_replay(profile: Profile) -> str:
    """`Iteration: eager 2.49 ms, replay 0.573 ms (4.35x, measured in the loop).`"""
    ops, launches = profile.value("device_ops_per_step"), profile.value("launches_per_step")
    of, per = ("whole span", "") if is_total(profile) else ("iteration", " per step")
    counted = "" if launches is None else f"; {plural(launches, 'launch')}{per}"
    if profile.mode == "rehearsal":
        counted = "" if ops is None else f"; {plural(ops, 'device operation')} per step"
        return sentence(NO_TIMES + counted)
    before, after = map(profile.metrics.get, ("iteration_ms", "replayed_iteration_ms"))
    text = f"{of}: eager {with_unit(before, spread=False)}, replay {with_unit(after, spread=False)}"
    speedup = profile.value("iteration_speedup")
    if speedup is not None and profile.verdict is not None:
        text += f" ({times(speedup)}, {known_by(profile)})"
    return sentence(text + counted)
