"""What is kept and shown of a command: where its script lies in the repository, and its arguments
without their secrets."""

from __future__ import annotations

import contextlib
import functools
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
_NUMBER = re.compile(r"[-+]?[\d_.,]+(e[-+]?\d+)?|true|false|none|null|yes|no", re.IGNORECASE)
# Last words of names, and what their values look like when they are not secret; the first that
# matches counts. Words are joined by "_".
_SECRETS = tuple(
    (re.compile(rf"(.*_)?({name})"), harmless)
    for name, harmless in (
        (r"pass(word|wd|phrase|code)s?|pwd", None),
        (
            r"(bos|eos|pad|mask|sep|cls|unk|start|end|stop|image|special|extra)_?token",
            re.compile(".*"),
        ),
        (
            r"\w*token|pass|pw|secrets?|credentials?|creds|cookie|jwt|bearer|dsn|webhook(_url)?",
            _NUMBER,
        ),
        (r"connection_?string|auth(entication|orization)?(_?header)?", _NUMBER),
        (
            r"(api|app|access|auth|account|secret|private|signing|storage|license|encryption|ssh"
            r"|deploy|master|shared|service|wandb|openai|anthropic|comet|neptune|hf|aws|azure|gcp)"
            r"_?key",
            _NUMBER,
        ),
        # Of a column, a data set, a dictionary, unless it looks like chance.
        (r"keys?", re.compile(r"(?!(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9+/_=-]{16,}$).*")),
    )
)
# Texts that are secret wherever they stand.
_KNOWN = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|[sr]k-[A-Za-z0-9_-]{16,}|xox[abeoprs]-[\w-]{10,}|(AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}"
    r"|ya29\.[\w-]{16,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{16,}|"
    r"eyJ[\w-]{8,4096}\.eyJ[\w-]{8,4096}(\.[\w-]*)?)"
)
_HEADER = re.compile(r"\b((?:bearer|basic)\s+)[^\s\"',]{6,}", re.IGNORECASE)
_BEARER = "bearer"
_SCHEMES = ("basic", "token")
_OF_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/?#@]+(?:@[^\s/?#@]*)*@", re.IGNORECASE)
# NAME=VALUE and "name": "value" inside of an argument: settings, URLs, JSON.
_NAMED = re.compile(r"""(?<![\w.-])([\w.-]{1,100})["']?\s{0,3}(?:=|:(?!//))\s{0,3}""")
_VALUE = re.compile(r"""(["']?)(.*?)\1(?=[\s"'&,;}\])]|$)""", re.DOTALL)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


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
    masked, name = [], ""
    for word in words:
        head, equals, value = word.partition("=")
        # The word behind `--auth Bearer` is the secret.
        scheme = word.lower() == _BEARER or (word.lower() in _SCHEMES and _is_secret(name, word))
        if name and not word.startswith("-") and _is_secret(name, word):
            word = MASK
        elif equals and _is_secret(head, value):
            word = f"{head}={MASK}"
        masked.append(masked_text(word))
        name = word if word.startswith("-") and not equals else _BEARER if scheme else ""
    return tuple(masked)


def masked_text(text: str) -> str:
    """A text with a mask in place of each secret in it."""
    text = _KNOWN.sub(MASK, _OF_URL.sub(rf"\1{MASK}@", _HEADER.sub(rf"\1{MASK}", text)))
    parts, end = [], 0
    for named in _NAMED.finditer(text):
        if named.start() < end or _rule_for(named[1]) is None:
            continue
        value = _VALUE.match(text, named.end())
        if value is not None and _is_secret(named[1], value[2]):
            parts += [text[end : named.end()], value[1], MASK, value[1]]
            end = value.end()
    return "".join((*parts, text[end:]))


def _is_secret(name: str, value: str) -> bool:
    """Whether an argument of this name keeps a secret in this value."""
    rule = _rule_for(name)
    return bool(value) and rule is not None and not (rule[1] and rule[1].fullmatch(value))


@functools.lru_cache(maxsize=1024)
def _rule_for(name: str) -> tuple[re.Pattern[str], re.Pattern[str] | None] | None:
    words = "_".join(word for word in re.split(r"\W+|_", _CAMEL.sub("_", name).lower()) if word)
    return next((rule for rule in _SECRETS if rule[0].fullmatch(words)), None)
