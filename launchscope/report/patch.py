"""A patch for `git apply`: the change of an Adoption, at the top of the repository."""

from __future__ import annotations

from launchscope.errors import MeasureError
from launchscope.model import Adoption
from launchscope.reason_text import reason_text
from launchscope.report import RenderOptions, Reporter

UNVERIFIED = "Not verified on a GPU: it ran on the CPU only, where no CUDA graph can be made."


def render(adoption: Adoption, options: RenderOptions) -> bytes:
    """The bytes of the changed file as they are. Raises MeasureError if there is no change."""
    if not adoption.diff:
        reason = adoption.reason
        why = "the verdict is against a graph" if reason is None else reason_text(reason)
        is_needed = adoption.outcome != "not_needed"
        raise MeasureError(f"there is no patch: {why}", exit_code=int(is_needed))
    said = () if adoption.outcome == "verified" else (UNVERIFIED,)
    text = "".join(f"{line}\n" for line in (*said, *adoption.diff))
    return text.encode("utf-8", "surrogateescape")


REPORTER = Reporter("patch", (".patch", ".diff"), {Adoption: render}, exact=True)
