"""What this machine is: cores, memory, disk, GPUs, installed versions. Asks the system, never torch."""

from __future__ import annotations

from importlib import metadata


def factory_version() -> str:
    """The version of this checkout's installation; `unknown` when it runs without being installed."""
    try:
        return metadata.version("factory")
    except metadata.PackageNotFoundError:
        return "unknown"
