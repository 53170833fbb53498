"""The report of an Adoption: the change that was run and checked, or why there is none."""

from __future__ import annotations

from launchscope.model import Adoption, AdoptionOutcome, Metric
from launchscope.reason_text import MUTANTS, reason_text
from launchscope.report.document import (
    Column,
    Commands,
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
from launchscope.wording import listed, ms, pct, place, plural, sentence, times

_ANSWERS: dict[AdoptionOutcome, tuple[str, Tone]] = {
    "verified": ("verified patch", "good"),
    "unverified": ("not verified on a GPU", "caution"),
    "refused": ("no patch", "caution"),
    "failed": ("no patch", "bad"),
    "not_needed": ("no patch needed", "calm"),
}
_FORCED = {
    "learning_rate": "a changed learning rate",
    "evaluation": "an evaluation between two steps",
    "state_dict": "saving and loading the state",
    "short_batch": "a smaller batch",
}
_COVERED = {
    "step": "the whole step",
    "part": "one backward and its optimizer step",
    "forward_backward": "forward and backward; the optimizer stays outside",
    "forward": "the forward",
}
_FIXES = {
    "fused": "the optimizer gets `fused=True`",
    "capturable": "the optimizer gets `capturable=True`",
    "pin_memory": "batches are pinned, so that copies to the GPU need not wait",
    "on_device": "tensors of zeros, ones and the like are made on the GPU",
    "item_accumulation": "a sum stays on the GPU, without `.item()` in each step",
    "validate_args": "torch.distributions no longer checks values, which the host would read",
    "side_stream": "each rank works on a stream of its own, on which a graph can be captured",
}


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
            Section("Take it back with", tuple(Commands((line,)) for line in [value.undo] if line)),
        ),
    )


def _headline(value: Adoption) -> str:
    if value.outcome == "verified":
        return f"Checked over {plural(value.steps, 'step')}, {_equal(value)}; {_became(value)}."
    if value.outcome == "unverified":
        return (
            "The change ran on the CPU, where no CUDA graph can be made, and was not compared with "
            "the original. Run launchscope adopt on a machine with a GPU to verify it."
        )
    if value.outcome == "not_needed":
        verdict = VERDICTS[value.recommendation][0]
        why = f": {reason_text(value.reason)}" if value.reason else ""
        return f"The verdict on this step is {verdict}{why}. Nothing was changed."
    why = "unknown" if value.reason is None else reason_text(value.reason)
    at = f" ({place(value.where)})" if value.where else ""
    if value.outcome == "refused":
        return f"{sentence(why).removesuffix('.')}{at}. Nothing was changed."
    return f"{sentence(why)} No patch is shown."


def _equal(value: Adoption) -> str:
    if value.exact:
        return "equal to eager bit for bit"
    return f"equal to eager within {'rounding' if value.eager_exact else 'its own noise'}"


def _became(value: Adoption) -> str:
    before, after = (None if m is None else m.value for m in (value.before, value.after))
    if before is None or after is None:
        return "times were not measured"
    promised = "" if value.projected is None else f"; projected: {times(value.projected)}"
    return f"{ms(before)} became {ms(after)} ({times(before / after)}{promised})"


def _checks(value: Adoption) -> Section:
    """What was compared, and what a wrong change would have shown."""
    if value.outcome != "verified":
        return items("Checked", ())
    infers = value.covered == "forward"
    compared = ["parameters", "buffers", "outputs" if infers else "optimizer state"]
    compared += [plural(value.reads, "logged value")] if value.reads else []
    ranks = value.environment.world_size
    on_each = f" on each of {ranks:,} ranks" if ranks > 1 else ""
    texts = [f"{listed(compared)} agree in each step{on_each}"]
    if value.printed:
        agree = "agrees" if value.printed == 1 else "agree"
        texts.append(f"{plural(value.printed, 'printed or logged line')} {agree}")
    if value.held:
        agree = "agrees" if value.held == 1 else "agree"
        texts.append(f"{plural(value.held, 'value')} that the script holds or saves {agree}")
    if value.replayed_pct is not None:
        texts.append(f"{pct(value.replayed_pct)} of the calls after the warm-up were replays")
    forced = [_FORCED[event] for event in value.forced if event in _FORCED]
    texts += [f"they stay equal through {listed(forced)}"] if forced else []
    if value.switched:
        codes = listed([f"`{code}`" for code in value.switched])
        branches = "this branch" if len(value.switched) == 1 else "each of these branches"
        texts.append(f"they stay equal with {branches} taken the other way: {codes}")
    noticed = [MUTANTS[m.kind] for m in value.mutants if m.outcome == "noticed"]
    texts += (
        [f"the comparison notices faults made on purpose: {listed(noticed)}"] if noticed else []
    )
    return items("Checked", map(sentence, texts))


def _times(value: Adoption) -> Section:
    if value.outcome != "verified":
        return items("Times per step", ())
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
    of = " of the slowest rank" if value.environment.world_size > 1 else ""
    return Section(f"Times per step{of}, both in alternation", (table,))


def _range(metric: Metric) -> str | None:
    if not metric.samples:
        return None
    return f"{ms(min(metric.samples))} to {ms(max(metric.samples))}"


def _not_covered(value: Adoption) -> list[str]:
    if value.outcome != "verified":
        return []
    found = [f"{_FORCED[event]} could not be tried" for event in value.not_forced]
    found += [f"the other branch of `{code}` could not be tried" for code in value.not_switched]
    unfit = (mutant.kind for mutant in value.mutants if mutant.outcome == "not_applicable")
    found += [f"{MUTANTS[kind]}: not tried, because it would change nothing here" for kind in unfit]
    if value.reads is None:
        found.append("logged values: the two versions read them at other times")
    if value.printed is None:
        found.append("printed text: the original prints other lines in each run")
    if value.held == 0:
        found.append("what the script holds: it could not be compared")
    if value.seeded:
        found.append("other seeds: the script sets none, so launchscope set one")
    found.append(f"steps after the first {value.steps}, and what runs only at the end")
    return found
