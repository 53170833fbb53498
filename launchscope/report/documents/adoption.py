"""The report of an Adoption: the change that was run and checked, or why there is none."""

from __future__ import annotations

from launchscope.model import Adoption, AdoptionOutcome, Metric
from launchscope.reason_text import reason_text
from launchscope.report.document import (
    Column,
    Diff,
    Document,
    Section,
    Table,
    Tone,
    items,
    measured,
    notes,
    sections,
    words,
)
from launchscope.report.documents.labels import VERDICTS, command, machine
from launchscope.wording import listed_first, ms, pct, place, plural, sentence, times

_ANSWERS: dict[AdoptionOutcome, tuple[str, Tone]] = {
    "verified": ("verified patch", "good"),
    "unverified": ("not verified on a GPU", "caution"),
    "refused": ("no patch", "caution"),
    "failed": ("no patch", "bad"),
    "not_needed": ("no patch needed", "calm"),
}
_COVERED = {
    "step": "the whole step",
    "part": "one backward and its optimizer step",
    "forward_backward": "forward and backward; the optimizer stays outside",
    "forward": "the forward",
}
_FIXES = {
    "fused": "the optimizer gets `fused=True`",
    "validate_args": "torch.distributions no longer checks values, which the host would read",
}
_MOST_LINES = 8


def document(value: Adoption, top: int) -> Document:
    """Everything a report shows of an Adoption."""
    badge, tone = _ANSWERS[value.outcome]
    parts = [f"{plural(value.runs, 'run')} of the script"] if value.runs else []
    if value.covered is not None and value.outcome in ("verified", "unverified"):
        parts.insert(0, f"graphed: {_COVERED[value.covered]}")
    return Document(
        badge=badge.upper(),
        tone=tone,
        title=command(value.target),
        headline=_headline(value),
        basis=" · ".join(parts),
        context=(machine(value.environment),),
        sections=sections(
            Section("The change", (Diff(value.diff),)) if value.diff else items("The change", ()),
            items("Fixes in it", (sentence(_FIXES[fix]) for fix in value.fixes if value.diff)),
            _checks(value),
            _times(value),
            items("Not covered", map(sentence, _not_covered(value))),
            notes(value.notes),
        ),
    )


def _headline(value: Adoption) -> str:
    if value.outcome == "verified":
        return (
            f"Over {plural(value.steps, 'iteration')} the changed script {_equal(value)}; "
            f"{_became(value)}."
        )
    if value.outcome == "unverified":
        return (
            f"On the CPU, where no CUDA graph can be made, the changed script {_equal(value)}. "
            "Run launchscope adopt on a machine with a GPU to verify the graph."
        )
    verdict = f"the verdict on this step is {VERDICTS[value.recommendation][0]}"
    why = verdict if value.reason is None else reason_text(value.reason)
    said = f"{place(value.where)}: {why}." if value.where else sentence(why)
    return f"{said} Nothing was changed."


def _equal(value: Adoption) -> str:
    if value.exact:
        return "computes the same as the original, bit for bit"
    return "computes the same as the original, as far as two runs of it agree"


def _became(value: Adoption) -> str:
    before, after = (None if m is None else m.value for m in (value.before, value.after))
    if before is None or after is None:
        return "times were not measured"
    promised = "" if value.projected is None else f"; projected: {times(value.projected)}"
    return f"{ms(before)} became {ms(after)} ({times(before / after)}{promised})"


def _checks(value: Adoption) -> Section:
    """What was compared."""
    if value.outcome not in ("verified", "unverified"):
        return items("Checked", ())
    texts = [
        f"equal over {plural(value.steps, 'iteration')}: {plural(value.values, 'value')} of "
        "parameters, optimizer state, batches, arguments of libraries, and what the script holds "
        "at the end",
    ]
    if value.reads:
        texts.append(f"equal: {plural(value.reads, 'value')} that the script reads of tensors")
    if value.printed:
        texts.append(f"equal: {plural(value.printed, 'printed or written line')}")
    if value.replayed_pct is not None:
        texts.append(
            f"replayed: {pct(value.replayed_pct)} of the calls after the warm-up, each compared "
            "with eager, also after the learning rate was halved and the state reloaded"
        )
    return items("Checked", map(sentence, texts))


def _times(value: Adoption) -> Section:
    if value.outcome != "verified":
        return items("Times per iteration", ())
    rows = [
        {"version": "original", "metric": value.before},
        {"version": "changed", "metric": value.after},
    ]
    table = Table.of(
        rows,
        words("version", "version"),
        Column("median", "metric", measured, missing=measured(None)),
        Column("range", "metric", _range),
    )
    return Section("Times per iteration, both in turn", (table,))


def _range(metric: Metric) -> str | None:
    return f"{ms(min(metric.samples))} to {ms(max(metric.samples))}" if metric.samples else None


def _not_covered(value: Adoption) -> list[str]:
    if value.outcome not in ("verified", "unverified"):
        return []
    found = []
    if value.unreached:
        lines = listed_first([str(where) for where in value.unreached], _MOST_LINES)
        found.append(f"{lines}: did not run in the compared iterations")
    if value.printed is None:
        found.append("printed text: the original prints another number of lines in each run")
    if value.seeded:
        found.append("other seeds: the script sets none, so launchscope set one")
    found.append(f"what runs after the first {plural(value.steps, 'iteration')}")
    return found
