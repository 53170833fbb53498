"""Names come from anywhere: how they are shown so that none acts on a terminal, a log or a page."""

from __future__ import annotations

import codecs
import re
import unicodedata

_NOT_ASCII = re.compile(r"[^ -~]")
_NOT_JSON = re.compile(r"[^\n -~]|#(?=#\w*\[)")
_SURROGATE = re.compile("[\ud800-\udfff]")
# What CI services take as a command: "::" that begins a line (behind white space and colors), a
# group of Buildkite that begins one (behind colors), and "##[", "##vso[" or "##teamcity[" anywhere.
_COMMAND = re.compile(
    r"^(?:[^\S\n]|\033\[[\d;]*m)*:(?=:)|^(?:\033\[[\d;]*m)*([-+~^])(?=\1\1\s)|#(?=#\w*\[)",
    re.MULTILINE,
)
# Signs of our reports, one by one, so that columns stay where they are.
_SIGNS = str.maketrans("╭╮╰╯│─·…µ–→±█▏▎▍▌▋▊▉", "++++|--~u->~#   ####")


def visible(text: str) -> str:
    """A name as one line in which every character can be seen: what a terminal or a log would act
    on (controls, line breaks, marks of direction and of no width), and bytes that are no UTF-8,
    are written as escapes, `\\x1b`."""
    return text if text.isascii() and text.isprintable() else _NOT_ASCII.sub(_escaped, text)


def visible_code(text: str) -> str:
    """As `visible`, for a line of source code, whose tabs stay."""
    return "\t".join(map(visible, text.split("\t")))


def encodable(text: str) -> str:
    """The text with an escape for each byte that is no UTF-8, which no file can hold."""
    return text if text.isascii() else _SURROGATE.sub(_escaped, text)


def is_utf_8(encoding: str | None) -> bool:
    """Whether a stream of this encoding holds every text, in bytes that are safe for a terminal."""
    return encoding is not None and codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def in_encoding(text: str, encoding: str | None) -> str:
    """The text for a stream of this encoding (None: one in memory). Where that is not UTF-8, it is
    ASCII, because a letter may be a control of the terminal: `›` is the byte 0x9b in cp1252, which
    begins a control sequence."""
    if encoding is None or text.isascii() or is_utf_8(encoding):
        return encodable(text)
    return text.translate(_SIGNS).encode("ascii", "backslashreplace").decode()


def inert_json(data: bytes, *, ascii_only: bool = False) -> bytes:
    """JSON of the same values, with `\\uXXXX` for what a terminal or a CI service would act on.
    `ascii_only`: for everything else too, because a byte of it would act on another terminal."""

    def escaped(found: re.Match[str]) -> str:
        sign = found[0]
        if sign != "#" and not ascii_only and _is_seen(sign):
            return sign
        units = sign.encode("utf-16-be").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

    return _NOT_JSON.sub(escaped, data.decode()).encode()


def without_commands(text: str) -> str:
    """A text for the log of a CI service, with the sign that would begin a command escaped."""
    return _COMMAND.sub(lambda at: f"{at[0][:-1]}\\x{ord(at[0][-1]):x}", text)


def _escaped(found: re.Match[str]) -> str:
    return found[0] if _is_seen(found[0]) else _escape(found[0])


def _escape(sign: str) -> str:
    if "\udc80" <= sign <= "\udcff":  # a byte that Python could not decode
        return f"\\x{ord(sign) - 0xDC00:x}"
    return ascii(sign)[1:-1]


def _is_seen(sign: str) -> bool:
    return sign.isprintable() or unicodedata.category(sign) == "Zs"
