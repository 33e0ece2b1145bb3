"""Two machines on this one: network namespaces joined by a cable, each with an address and no other way out.

Needs root and `ip` (iproute2). The namespaces are gone with the context, and with them the cable.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

INSTALL = "apt-get install --no-install-recommends iproute2"
ADDRESSES = ("10.77.0.9", "10.77.0.10")
"""In the alphabet the second comes first: no order of addresses may decide who is who."""


def can() -> bool:
    """Whether namespaces can be made here."""
    return os.geteuid() == 0 and shutil.which("ip") is not None and _ip("netns", "list", check=False) == 0


@dataclass(frozen=True)
class Machine:
    """A network namespace."""

    name: str
    address: str

    def words(self, *argv: str) -> list[str]:
        """A command as it runs on this machine."""
        return ["ip", "netns", "exec", self.name, *argv]

    def unplug(self) -> None:
        """Pull the cable: nothing arrives any more, and nobody is told."""
        subprocess.run(self.words("ip", "link", "set", "cable", "down"), check=True)


@contextlib.contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Two machines that see each other and nothing else."""
    pair = tuple(
        Machine(f"factory-{os.getpid()}-{place}", address)
        for place, address in zip("ab", ADDRESSES, strict=True)
    )
    try:
        for one in pair:
            _ip("netns", "add", one.name)
            subprocess.run(one.words("ip", "link", "set", "lo", "up"), check=True)
        first, second = pair
        _ip(
            "link",
            "add",
            "cable",
            "netns",
            first.name,
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            second.name,
        )
        for one in pair:
            subprocess.run(one.words("ip", "address", "add", f"{one.address}/24", "dev", "cable"), check=True)
            subprocess.run(one.words("ip", "link", "set", "cable", "up"), check=True)
        yield first, second
    finally:
        for one in pair:
            _ip("netns", "delete", one.name, check=False)


def _ip(*words: str, check: bool = True) -> int:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.returncode
