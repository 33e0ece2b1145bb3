"""Which encoding a text is in, from its bytes alone."""

from __future__ import annotations

import codecs
import io
from typing import IO

from data.errors import refuse

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def guess_encoding(head: bytes) -> str:
    """The Python name of the encoding of `head` (the first bytes of a file, possibly cut inside a character).

    A byte order mark decides; then the pattern of NULs (UTF-16); then valid UTF-8; then, among the
    encodings people export from Windows, the one whose byte patterns fit: GB18030, Shift-JIS, cp1251, cp1252.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    half = max(1, len(head) // 2)
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if max(even, odd) > 0.6 * half and min(even, odd) < 0.1 * half:
        return "utf-16-be" if even > odd else "utf-16-le"
    return "utf-8" if _is_utf8(head) else _legacy(head)


def known_encoding(name: str) -> str:
    """Python's name of a text encoding. Raises FactoryError for a name that means none, or no text (base64)."""
    try:
        codec = codecs.lookup(name)
    except LookupError:
        codec = None
    if codec is None or not codec._is_text_encoding:
        raise refuse(
            "unknown_encoding",
            f"There is no text encoding {name}: take utf-8, gb18030, cp1252 or another of Python's, "
            "or leave data.encoding empty.",
            field="data.encoding",
            value=name,
        )
    return codec.name


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
    pairs, common, kana, high, runs, cyrillic = _high_bytes(head)
    if pairs and common >= 0.6 * pairs and _decodes(head, "gb18030"):
        return "gb18030"
    if kana and _decodes(head, "shift_jis"):
        return "shift_jis"
    # Cyrillic words are runs of high letters; in western languages such letters stand alone or in twos.
    if cyrillic > 0.8 * high and high >= 3 * runs:
        return "cp1251"
    return "cp1252" if _decodes(head, "cp1252") else "latin-1"


def _high_bytes(head: bytes) -> tuple[int, int, int, int, int, int]:
    """Counts: high byte pairs, GB 2312 level-1 pairs, Shift-JIS kana, high bytes, runs of them, Cyrillic letters."""
    pairs = common = kana = high = runs = cyrillic = 0
    at, end = 0, len(head)
    while at < end:
        if head[at] < 0x80:
            at += 1
            continue
        start = at
        while at < end and (
            head[at] >= 0x80 or (head[at] >= 0x40 and (at - start) % 2 and head[start] in (0x82, 0x83))
        ):
            at += 1
        run = head[start:at]
        runs += 1
        high += len(run)
        cyrillic += sum(byte >= 0xC0 for byte in run)
        for lead, trail in zip(run[::2], run[1::2], strict=False):
            pairs += 1
            # Level 1 of GB 2312 (the 3,755 everyday characters) and its punctuation rows.
            common += (0xB0 <= lead <= 0xD7 or lead in (0xA1, 0xA3)) and trail >= 0xA1
            kana += lead in (0x82, 0x83)
        common -= len(run) % 2
    return pairs, common, kana, high, runs, cyrillic


def text_of(stream: IO[bytes], encoding: str) -> io.TextIOWrapper:
    """The stream decoded; bytes that do not fit become U+FFFD (counted later as a finding), line ends become \\n."""
    return io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline=None)
