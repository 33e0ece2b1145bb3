"""The environment of a training command on one node: how its processes find each other's network."""

from __future__ import annotations

from collections.abc import Mapping

from core.nodes.link import interface_of

SOCKETS = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
"""Left alone, gloo takes the interface that the host's name leads to, which often is the loopback."""


def network(interface: str | None, address: str, given: Mapping[str, str]) -> dict[str, str]:
    """The variables that name the interface: the job's, else the one that has `address`; what is set stays."""
    name = interface or interface_of(address)
    return {key: name for key in SOCKETS if name and key not in given}
