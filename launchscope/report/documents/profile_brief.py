"""The report of a Profile that fits a screen: the answer, its reason, five rows, what to do."""

from __future__ import annotations

from dataclasses import replace

from launchscope.model import Finding, Profile
from launchscope.report.document import (
    Bars,
    Document,
    Entries,
    Entry,
    Items,
    Paragraph,
    Section,
    measured,
    notes,
    sections,
)
from launchscope.report.documents import profile as full
from launchscope.report.documents.labels import VERDICTS, known_by
from launchscope.report.documents.next_step import (
    adopt_commands,
    findings,
    of_code,
    to_do,
    what_to_do,
)
from launchscope.wording import listed, ms, plural, sentence, times

# The gain with its bounds, the share of graphs, that nothing ran on a GPU.
_IN_HEADLINE = ("LS001", "LS008", "LS041")
_MOST_ROWS, _MOST_PARTS, _MOST_TO_DO, _MOST_NOTES = 5, 4, 3, 3
_MOST_RANKS = 8
# In a tight report: the bars have the other rows, and parts below this share are left out.
_FEWEST_ROWS, _SMALLEST_PART_PCT = 3, 2.0
# Beside the durations, as many as there is room for.
_ROWS = (
    ("launches per step", "launches_per_step"),
    ("GPU busy in the step", "gpu_busy_ms"),
    ("launch overhead, exposed", "launch_overhead_ms"),
    ("synchronizations per step", "syncs_per_step"),
    ("device operations per step", "device_ops_per_step"),
    ("distinct operation sequences", "shape_signatures"),
    ("synchronizations between steps", "between_syncs"),
)


def document(profile: Profile, *, tight: bool = False) -> Document:
    """What a person needs first. A `tight` one says nothing twice, for screens on which the lines
    wrap."""
    answer = full.answer(profile)
    reason, (steps, fixes) = reason_of(profile), to_do(profile)
    most = _most_to_do(profile, tight=tight)
    parts = full.iteration(profile)
    shown = sections(
        _figures(profile, _FEWEST_ROWS if tight and parts.blocks else _MOST_ROWS),
        _parts(parts, _SMALLEST_PART_PCT if tight else 0.0),
        *_of_ranks(profile),
        what_to_do(profile, steps[:most], fixes[:most]),
        Section("Keep in mind", (Entries(_doubts(profile)),)),
        notes(_remarks(profile)),
    )
    return replace(
        answer,
        headline=" ".join((answer.headline, *([sentence(reason.title)] if reason else ()))),
        context=(" · ".join(answer.context),),
        sections=shown,
    )


def _of_ranks(profile: Profile) -> tuple[Section, ...]:
    if profile.ranks is None:
        return ()
    first, *_ = full.of_ranks(profile, _MOST_RANKS)
    notes_on_them = Items(tuple(map(sentence, profile.ranks.notes[:_MOST_NOTES])))
    blocks = first.blocks if len(profile.ranks.rows) <= _MOST_RANKS else first.blocks[:1]
    return (Section("Ranks", (*blocks, notes_on_them)),)


def not_shown(profile: Profile, page: str = "", *, tight: bool = False) -> str:
    """`-v or -o report.html shows 4 findings and 27 kernels more`. `page` is written already."""
    most, (steps, fixes) = _most_to_do(profile, tight=tight), to_do(profile)
    shown = (*fixes[:most], *_doubts(profile), *filter(None, (reason_of(profile),)))
    hidden = {
        "finding": len(profile.findings) - len(shown),
        "instruction": len(steps[most:]),
        "kernel": len(profile.kernels),
        "note": len(profile.notes) - len(_remarks(profile)),
    }
    counted = [plural(number, noun) for noun, number in hidden.items() if number]
    return f"-v or {page or '-o report.html'} shows {listed(counted)} more" if counted else ""


def _most_to_do(profile: Profile, *, tight: bool) -> int:
    """How many steps are shown: fewer where a command takes them."""
    command = bool(adopt_commands(profile))
    most = _MOST_TO_DO - bool(_doubts(profile) or _remarks(profile) or command)
    return most - (command and tight)


def _doubts(profile: Profile) -> tuple[Entry, ...]:
    """The first warning that is not the reason."""
    reason, said = reason_of(profile), _said(profile)
    warnings = [
        entry for entry in findings(profile)["Keep in mind"] if entry.tone in ("bad", "caution")
    ]
    others = [entry for entry in warnings if entry.code not in (*said, reason and reason.code)]
    return tuple(replace(entry, advice="") for entry in others[:1])


def _remarks(profile: Profile) -> tuple[str, ...]:
    """What happened in a run. A trace has notes on its figures: only that on damage is shown."""
    most = _MOST_NOTES if profile.mode != "trace" else int(profile.facts.damaged is True)
    return profile.notes[:most]


def reason_of(profile: Profile) -> Finding | None:
    """The finding behind the verdict that says more than its headline does, the most severe one of
    its rule."""
    codes = profile.verdict.because if profile.verdict is not None else ()
    said = (*_said(profile), "LS030") if profile.mode == "trace" else _said(profile)
    known = [found for code in codes if code not in said for found in of_code(profile, code)]
    return known[0] if known else None


def _said(profile: Profile) -> tuple[str, ...]:
    """The rules whose finding the headline says. One of an unsafe graph says its first reason."""
    verdict = profile.verdict
    if verdict is None or verdict.recommendation != "unsafe":
        return _IN_HEADLINE
    return (*_IN_HEADLINE, *verdict.because[:1])


def closing(profile: Profile) -> Paragraph:
    """`ADOPT  2.49 ms to 0.573 ms per iteration (4.35x), measured in the loop`."""
    verdict = profile.verdict
    label, tone = VERDICTS[None if verdict is None else verdict.recommendation]
    before, after = profile.value("iteration_ms"), profile.value("replayed_iteration_ms")
    text = label.upper()
    if verdict is not None and before and after and verdict.recommendation != "inconclusive":
        with_replay = "" if verdict.recommendation.startswith("adopt") else " with a replay"
        text += f"  {ms(before)} to {ms(after)} per iteration{with_replay} "
        text += f"({times(before / after)}), {known_by(profile)}"
    elif profile.mode == "rehearsal" and (ops := profile.value("device_ops_per_step")) is not None:
        text += f"  {plural(ops, 'device operation')} per step, times not measured"
    return Paragraph(text, tone)


def _figures(profile: Profile, most: int) -> Section:
    """The times of the step and the iteration, and other figures in the rows that are left."""
    rows = [] if profile.mode == "rehearsal" else full.durations(profile, spread=False)
    rows = [row for row in rows if row.replay]
    for label, key in _ROWS:
        if profile.value(key) is not None and len(rows) < most:
            rows.append(full.Row(label, measured(profile.metrics[key], spread=False)))
    return full.times_section(profile, rows)


def _parts(section: Section, smallest_pct: float) -> Section:
    """The largest parts of the iteration."""
    blocks = []
    for block in section.blocks:
        if isinstance(block, Bars):
            by_size = sorted(block.bars, key=lambda bar: -(bar.share_pct or 0.0))[:_MOST_PARTS]
            kept = [bar for bar in by_size if (bar.share_pct or 0.0) >= smallest_pct]
            block = replace(block, bars=tuple(bar for bar in block.bars if bar in kept))
        blocks.append(block)
    return Section(section.heading, tuple(blocks))
