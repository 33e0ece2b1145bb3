"""The line between node 0 and another node: JSON objects, one a line, and a sign of life every few seconds.

Training libraries notice a dead peer after minutes or not at all (a pulled cable sends no farewell); this line does
within SILENCE seconds, and whoever finds it cut ends what it started.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

SILENCE = 20.0
"""Seconds without a word after which the other side counts as lost."""
BEAT = 2.0
"""Seconds between signs of life."""
LONGEST = 65_536
"""Bytes of a line; whoever sends more is no node of ours."""


class Lost(Exception):
    """The other side is gone: the line was cut, or nothing was heard for too long. The message says which."""


class Link:
    """One side of a line."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._read = b""
        self._unsent = b""
        self._heard = self._beaten = time.monotonic()
        self._cut: str | None = None

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    @property
    def own_address(self) -> str:
        """The address of this side."""
        return str(self._socket.getsockname()[0])

    @property
    def their_address(self) -> str:
        """The address of the other side."""
        with contextlib.suppress(OSError):
            return str(self._socket.getpeername()[0])
        return "an unknown address"

    def send(self, **message: Any) -> None:
        """Send an object; when the line is cut, the next `receive` says so."""
        self._unsent += json.dumps(message).encode() + b"\n"
        self._push()

    def receive(self) -> list[dict[str, Any]]:
        """What was said since the last time, signs of life left out. Raises Lost when the other side is gone."""
        self._beat()
        self._pull()
        *lines, self._read = self._read.split(b"\n")
        told = [message for line in lines if (message := _object(line))]
        if not told and (len(self._read) > LONGEST or self._cut is not None):
            raise Lost(self._cut or "it sent what no node sends")
        if time.monotonic() - self._heard > SILENCE:
            raise Lost(f"no sign of life for {SILENCE:.0f} s")
        return told

    def close(self) -> None:
        """Cut the line. Idempotent."""
        self._socket.close()

    def _beat(self) -> None:
        if time.monotonic() - self._beaten > BEAT:
            self._beaten = time.monotonic()
            self._unsent += b"{}\n"
        self._push()

    def _push(self) -> None:
        while self._unsent and self._cut is None:
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                return
            except OSError as error:
                self._cut = f"the connection was cut ({error.strerror})"

    def _pull(self) -> None:
        while self._cut is None and len(self._read) <= LONGEST:
            try:
                piece = self._socket.recv(LONGEST)
            except BlockingIOError:
                return
            except OSError as error:
                self._cut = f"the connection was cut ({error.strerror})"
                return
            if not piece:
                self._cut = "the connection was closed"
                return
            self._heard = time.monotonic()
            self._read += piece


def wait_for(links: Sequence[Link | socket.socket], seconds: float) -> None:
    """Sleep until one of these has something to read, at most so long."""
    with contextlib.suppress(OSError, ValueError):
        select.select([one for one in links if one.fileno() >= 0], [], [], seconds)


def _object(line: bytes) -> Mapping[str, Any] | Any:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Address and port of `10.0.0.1:29500` or `[fe80::1]:29500`."""
    address, _, port = endpoint.rpartition(":")
    return address.strip("[]"), int(port)


def joined(address: str, port: int) -> str:
    """Address and port as one word."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def interface_of(address: str) -> str | None:
    """The name of this machine's network interface with an IPv4 address; None when there is none, or not Linux."""
    import fcntl
    import struct

    get_address = 0x8915  # SIOCGIFADDR, from linux/sockios.h
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe.fileno(), get_address, struct.pack("256s", name[:15].encode()))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None
