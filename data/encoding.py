"""Which encoding a text is in, from its bytes alone."""

from __future__ import annotations

import codecs
import io
from typing import IO

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def guess_encoding(head: bytes) -> str:
    """The Python name of the encoding of `head` (the first bytes of a file, possibly cut inside a character).

    A byte order mark decides; then valid UTF-8; then the pattern of NULs (UTF-16); then, among the
    encodings people export from Windows, the one whose byte patterns fit: GB18030, Shift-JIS, cp1251, cp1252.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    if _is_utf8(head):
        return "utf-8"
    half = max(1, len(head) // 2)
    if head[1::2].count(0) > 0.6 * half:
        return "utf-16-le"
    if head[0::2].count(0) > 0.6 * half:
        return "utf-16-be"
    return _legacy(head)


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=False)
    except UnicodeDecodeError:
        return False
    return True


def _decodes(head: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(head, final=False)
    except (UnicodeDecodeError, LookupError):
        return False
    return True


def _legacy(head: bytes) -> str:
    pairs, common, kana, singles, cyrillic = _high_bytes(head)
    if pairs and common >= 0.6 * pairs and _decodes(head, "gb18030"):
        return "gb18030"
    if kana and _decodes(head, "shift_jis"):
        return "shift_jis"
    high = 2 * pairs + singles
    if cyrillic > 0.8 * high and pairs > singles:
        return "cp1251"
    return "cp1252" if _decodes(head, "cp1252") else "latin-1"


def _high_bytes(head: bytes) -> tuple[int, int, int, int, int]:
    """Counts over runs of high bytes: pairs, GB2312 level-1 pairs, Shift-JIS kana, lone bytes, Cyrillic letters."""
    pairs = common = kana = singles = cyrillic = 0
    at, end = 0, len(head)
    while at < end:
        lead = head[at]
        if lead < 0x80:
            at += 1
            continue
        cyrillic += lead >= 0xC0
        trail = head[at + 1] if at + 1 < end else 0
        if lead in (0x82, 0x83) and trail >= 0x40:
            kana += 1
        if trail < 0x80:
            singles += 1
            at += 1
            continue
        cyrillic += trail >= 0xC0
        pairs += 1
        # Level 1 of GB 2312 (the 3,755 everyday characters) and its punctuation rows.
        common += (0xB0 <= lead <= 0xD7 or lead in (0xA1, 0xA3)) and trail >= 0xA1
        at += 2
    return pairs, common, kana, singles, cyrillic


def text_of(stream: IO[bytes], encoding: str) -> io.TextIOWrapper:
    """The stream decoded; bytes that do not fit become U+FFFD (counted later as a finding), line ends become \\n."""
    return io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline=None)
