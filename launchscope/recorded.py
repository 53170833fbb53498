"""What is kept and shown of a command: where its script lies in the repository, and its arguments
without their secrets."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from launchscope.host import working_directory

if TYPE_CHECKING:
    from launchscope.model import Target

MASK = "***"
# Names whose values are secret, by their last word.
_NAMES = (
    r"[\w.-]*(?:pass(?:word|wd|phrase|code)|pwd|token|secret|cred|credential|cookie|jwt|dsn"
    r"|webhook(?:[_-]?url)?|connection[_-]?string|auth(?:entication|orization)?"
    r"|(?:api|app|access|auth|account|secret|private|signing|storage|license|encryption|ssh|deploy"
    r"|master|shared|service|wandb|openai|anthropic|hf|aws|azure|gcp)[_-]?key)s?"
)
_SCHEME = r"((?:bearer|basic|token)[\s\0]+)?"
# In words joined by zeros: an option with its value, and NAME=VALUE or "name": "value" in a word.
_OPTION = re.compile(rf"((?<![^\0])-{_NAMES}(?:=|\0(?!-))){_SCHEME}([^\0]+)", re.IGNORECASE)
_NAMED = re.compile(
    rf"""((?<![\w.-]){_NAMES}["']?\s{{0,3}}(?:=|:(?!//))[\s\0]{{0,3}}["']?)"""
    rf"""{_SCHEME}([^\s\0"'&,;}}\])]+)""",
    re.IGNORECASE,
)
_ALWAYS = re.compile(r"pass(?:word|wd|phrase|code)|pwd", re.IGNORECASE)
# Other values that are not secret: numbers, switches, and special tokens such as <pad>.
_HARMLESS = re.compile(
    r"[-+]?[\d_.,]+(e[-+]?\d+)?|true|false|none|null|yes|no|<.*>|\[.*\]?", re.IGNORECASE
)
# Texts that are secret wherever they stand.
_KNOWN = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|[sr]k-[A-Za-z0-9_-]{16,}|xox[abeoprs]-[\w-]{10,}|(AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}"
    r"|ya29\.[\w-]{16,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{16,}|"
    r"eyJ[\w-]{8,4096}\.eyJ[\w-]{8,4096}(\.[\w-]*)?)"
)
_BEARER = re.compile(r"\b(bearer[\s\0]+)[^\s\0\"',]{6,}", re.IGNORECASE)
_OF_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s\0/?#@]+(?:@[^\s\0/?#@]*)*@", re.IGNORECASE)


def recorded(target: Target) -> Target:
    """The target as files and reports have it."""
    path = None
    if target.kind == "module":
        path = place_in_repository(Path(working_directory()))
    elif target.kind == "script":
        path = place_in_repository(Path(working_directory(), target.name))
    return replace(target, args=without_secrets(target.args), path=path)


def place_in_repository(path: Path) -> str | None:
    """The path from the root of the git repository that it lies in, "." for the root; None outside
    of one. A submodule counts as a part of the repository that contains it."""
    folder = os.path.realpath(path if path.is_dir() else path.parent)
    real = Path(folder) if path.is_dir() else Path(folder, path.name)
    for root in (real, *real.parents):
        marker = root / ".git"
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if marker.is_dir() or (marker.is_file() and "/modules/" not in marker.read_text()):
                return real.relative_to(root).as_posix()
    return None


def shown_command(words: Iterable[str]) -> str:
    """The words as typed in a shell, without their secrets."""
    return shlex.join(without_secrets(tuple(words)))


def without_secrets(words: Sequence[str]) -> tuple[str, ...]:
    """Arguments with a mask in place of what looks like a token, a password or a key."""
    if not words:
        return ()
    text = _OF_URL.sub(rf"\1{MASK}@", _BEARER.sub(rf"\1{MASK}", "\0".join(words)))
    for pattern in (_OPTION, _NAMED):
        text = pattern.sub(_masked, text)
    return tuple(_KNOWN.sub(MASK, text).split("\0"))


def _masked(found: re.Match[str]) -> str:
    name, scheme, value = found.groups(default="")
    is_secret = _ALWAYS.search(name) or not _HARMLESS.fullmatch(value)
    return f"{name}{scheme}{MASK}" if is_secret else found[0]
