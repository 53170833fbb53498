"""Why something was not measured, or means less than it seems to: a code with its details."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

ReasonCode: TypeAlias = str  # `launchscope.reason_text` has the words for each


@dataclass(frozen=True)
class Reason:
    """`details` complete the sentence; no code decides on a text among them. Of an error they are
    `kind`, the name of its class, and `error`, its text."""

    code: ReasonCode
    details: Mapping[str, str | int | float] = field(default_factory=dict)
