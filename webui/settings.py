"""What the operator decides when the board is started: where it listens, who may come in, what jobs may read."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

from core.runs.storage import refusal, write_atomic
from data.errors import refuse

PORT = 7860
TOKEN_FILE = ".board-token"
"""Beside the runs, readable by the owner alone; no route gives out a file whose name begins with a dot."""
TOKEN_VARIABLE = "FACTORY_TOKEN"
GIB = 1 << 30


@dataclass(frozen=True)
class Settings:
    """Decided once at the start, the same for every request."""

    home: Path
    host: str = "127.0.0.1"
    port: int = PORT
    token: str | None = None
    """None only on a loopback address: everybody on this machine may come in."""
    allow: tuple[Path, ...] = ()
    """Folders outside the home whose files a job from the browser may name."""
    names: tuple[str, ...] = ()
    """Host names under which the board may be called besides its own, as behind a proxy."""
    force_home: bool = False
    """The operator accepts a home on a network file system."""
    upload_bytes: int = 20 * GIB
    """Largest single upload."""
    quota_bytes: int = 100 * GIB
    """Most that uploads may take together."""

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def address(self) -> str:
        """Where to open it, with the token, which the first answer turns into a cookie."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_of(home: Path) -> str:
    """The home's token: from the environment, else from its file, which is made at the first start.

    It outlives a restart, so that open pages go on. Raises FactoryError when it is too short or cannot be kept.
    """
    given = os.environ.pop(TOKEN_VARIABLE, "").strip()  # no child of the board is to know it
    if given:
        if len(given) < 16 or not given.isascii() or not given.isprintable() or " " in given:
            text = f"{TOKEN_VARIABLE} must be at least 16 letters, digits or signs without spaces; leave it out to "
            raise refuse("token_too_short", text + "have one made.", value=len(given))
        return given
    path = home / TOKEN_FILE
    try:
        if path.is_file() and (kept := path.read_text("ascii").strip()):
            path.chmod(0o600)
            return kept
        made = secrets.token_urlsafe(24)
        path.touch(mode=0o600)
        path.unlink()
        old = os.umask(0o077)
        try:
            write_atomic(path, made + "\n")
        finally:
            os.umask(old)
    except OSError as error:
        raise refusal(error, path) from error
    return made


def listen(host: str, port: int, again: str = "") -> socket.socket:
    """A bound socket. Raises FactoryError when the port is taken or the address is not ours.

    `again` are the words before --port and a free port that the refusal of a taken one ends with, where there are any.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise _not_bound(host, port, error, again) from None
    return made


def _not_bound(host: str, port: int, error: Exception, again: str) -> Exception:
    import errno

    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        free = next_free(host, port)
        advice = f"{again} --port {free}" if free and again else "choose another with --port"
        return refuse("port_in_use", f"Port {port} on {host} is in use; {advice}", value=port, free=free)
    if number in (errno.EACCES, errno.EPERM):
        text = f"Port {port} on {host} needs more rights than this user has; take one above 1023 with --port."
        return refuse("port_forbidden", text, value=port)
    return refuse(
        "address_unusable", f"The address {host}:{port} cannot be listened on ({error}).", value=host
    )


def next_free(host: str, port: int) -> int | None:
    """The next port that nobody listens on, among the hundred that follow."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port + 1, min(port + 101, 65_536)):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, candidate))
            except OSError:
                continue
            return candidate
    return None
