"""Opening a file safely: no links, compression and encoding found from the content, growth limited."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from data.errors import refuse
from data.limits import FREE_EXPANSION, MAX_EXPANDED, MAX_EXPANSION, MAX_LINE

SNIFF = 256 * 2**10

_ZIP = b"PK\x03\x04"
_REFUSED_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\xd0\xcf\x11\xe0", "an old Office file (.xls, .doc)"),
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x80\x04\x95", "a Python pickle, which can run code"),
    (b"\x80\x02", "a Python pickle, which can run code"),
    (b"\x7fELF", "a program"),
    (b"GGUF", "model weights (GGUF)"),
    (b"\x93NUMPY", "a NumPy array"),
)


@dataclass(frozen=True)
class Opened:
    """A file opened for reading: its decompressed bytes, what the content is, and how it was packed."""

    path: Path
    stream: io.BufferedReader
    head: bytes
    kind: str
    packed: str | None
    raw: IO[bytes]
    """The file itself, to be closed by whoever opened it."""


def open_file(path: Path) -> Opened:
    """Open `path` without following a link and look at its first bytes.

    `kind` is parquet, arrow, arrow_stream, xlsx or text. Raises FactoryError when the file is missing, empty,
    a link, not a file, a zip, binary, or grows beyond the limits of data.limits while it is read.
    """
    raw = _open_raw(path)
    try:
        return _look_into(raw, path)
    except BaseException:
        raw.close()
        raise


def _look_into(raw: io.BufferedReader, path: Path) -> Opened:
    size = os.fstat(raw.fileno()).st_size
    magic = raw.read(8)
    raw.seek(0)
    packed: str | None = None
    stream: io.BufferedReader = raw
    if magic.startswith(b"\x1f\x8b"):
        import gzip

        packed = "gzip"
        stream = io.BufferedReader(_Limited(cast("IO[bytes]", gzip.GzipFile(fileobj=raw)), size, path), 2**20)
    elif magic.startswith(b"\x28\xb5\x2f\xfd"):
        packed = "zstd"
        stream = io.BufferedReader(_Limited(_zstd(raw), size, path), 2**20)
    head = _peek(stream, path)
    if not head:
        raise refuse(
            "data_empty",
            f"{path.name} is empty: choose a file with rows.",
            field="data.path",
            value=str(path),
        )
    return Opened(path, stream, head, _kind_of(head, path), packed, raw)


def _open_raw(path: Path) -> io.BufferedReader:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise _cannot_open(path, error) from None
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        raise refuse(
            "data_not_a_file", f"{path} is not a plain file: name a file with rows.", field="data.path"
        )
    return io.BufferedReader(io.FileIO(descriptor, closefd=True), 2**20)


def _cannot_open(path: Path, error: OSError) -> Exception:
    if path.is_symlink():
        return refuse(
            "data_is_a_link",
            f"{path} is a link, and links are not followed: name the file it points to.",
            field="data.path",
            value=str(path),
        )
    if isinstance(error, FileNotFoundError):
        return refuse(
            "data_not_found", f"There is no file {path}: check the path.", field="data.path", value=str(path)
        )
    return refuse(
        "data_unreadable", f"{path} cannot be read ({error.strerror}).", field="data.path", value=str(path)
    )


def _zstd(raw: IO[bytes]) -> IO[bytes]:
    import pyarrow

    return cast("IO[bytes]", pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd"))


class _Limited(io.RawIOBase):
    """A decompressing stream that stops when it grows too much and words a torn archive."""

    def __init__(self, inner: IO[bytes], packed_size: int, path: Path) -> None:
        self._inner, self._path = inner, path
        self._allowed = min(MAX_EXPANDED, max(FREE_EXPANSION, MAX_EXPANSION * packed_size))
        self._seen = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            piece = self._inner.read(len(buffer))
        except (OSError, EOFError, ValueError) as error:
            raise refuse(
                "data_torn_archive",
                f"{self._path.name} is a damaged or cut-off archive: copy or download it again.",
                field="data.path",
                value=str(self._path),
                detail=str(error)[:200],
            ) from None
        self._seen += len(piece)
        if self._seen > self._allowed:
            raise refuse(
                "data_expands_too_much",
                f"{self._path.name} grows to more than {self._allowed / 2**20:,.0f} MiB when unpacked, "
                f"over {MAX_EXPANSION} times its size: unpack it yourself if you trust it.",
                field="data.path",
                value=str(self._path),
            )
        buffer[: len(piece)] = piece
        return len(piece)


def _peek(stream: io.BufferedReader, path: Path) -> bytes:
    head = stream.peek(1)
    if len(head) < SNIFF and stream.seekable():
        head = stream.read(SNIFF)
        stream.seek(0)
    return head[:SNIFF]


def _kind_of(head: bytes, path: Path) -> str:
    if head.startswith(_ZIP):
        if b"xl/" in head or b"[Content_Types].xml" in head[:64] or path.suffix.lower() in (".xlsx", ".xlsm"):
            return "xlsx"
        raise _refused(path, "a zip archive", "unpack it and name the folder")
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"ARROW1"):
        return "arrow"
    for magic, what in _REFUSED_MAGIC:
        if head.startswith(magic):
            raise _refused(path, what, "convert it to JSONL, CSV, Parquet or plain text")
    if head.startswith(b"\xff\xff\xff\xff") and len(head) > 8 and head[8:9] != b"\xff":
        return "arrow_stream"
    return "text"


def _refused(path: Path, what: str, then: str) -> Exception:
    return refuse(
        "data_kind_refused", f"{path.name} is {what}, which is not read as data: {then}.", field="data.path",
        value=str(path), kind=what,
    )  # fmt: skip


def is_binary(head: bytes) -> bool:
    """True for bytes no text encoding explains: control characters are common, or NULs outside UTF-16/32."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return False
    sample = head[:8192]
    if _looks_utf16(sample):
        return False
    control = sum(sample.count(bytes([c])) for c in (*range(9), *range(14, 27), *range(28, 32)))
    return control * 20 > len(sample)


def _looks_utf16(sample: bytes) -> bool:
    half = max(1, len(sample) // 2)
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    return max(even, odd) > 0.6 * half and min(even, odd) < 0.1 * half


def lines_of(stream: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """(line number, line without its end) for each line; None for one longer than MAX_LINE, whose rest is skipped."""
    number = 0
    readline = stream.readline
    limit = MAX_LINE + 2
    while line := readline(limit):
        number += 1
        if len(line) == limit and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = readline(limit)
            yield number, None
            continue
        yield number, line
