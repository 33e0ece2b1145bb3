"""Processes of one machine meet on its loopback alone: torch's own store listens on every address it has.

torch 2.13 takes a socket that listens already (`TCPStore(master_listen_fd=...)`, torch/distributed/distributed_c10d),
which is the only way to say where.
"""

from __future__ import annotations

import os
import socket
import sys
from argparse import Namespace

from torch.distributed import PrefixStore, Store, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

NAME = "factory-loopback"
HERE = "127.0.0.1"
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""What gloo and NCCL listen on; left alone, they take what the machine's name leads to. Whoever sets one keeps it."""


def stay_here(arguments: Namespace) -> None:
    """Change torchrun's arguments so that its processes, all of this machine, meet and talk on the loopback."""
    rendezvous_handler_registry.register(NAME, Loopback)
    arguments.standalone = False
    arguments.rdzv_backend = NAME
    interface = "lo0" if sys.platform == "darwin" else "lo"
    for name in INTERFACES:
        os.environ.setdefault(name, interface)


class Loopback(RendezvousHandler):
    """One machine's meeting: nobody to wait for, and a store on a free port of the loopback, held by this process."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._id = parameters.run_id
        listening = socket.create_server((HERE, 0))
        self._port: int = listening.getsockname()[1]
        self._store: Store = TCPStore(
            HERE,
            self._port,
            is_master=True,
            multi_tenant=True,
            master_listen_fd=listening.detach(),  # closed with the store
        )

    def get_backend(self) -> str:
        """What torch calls it in its log."""
        return NAME

    @property
    def use_agent_store(self) -> bool:
        """The processes take this store in place of one of their own."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Rank 0 of 1 machine, at once."""
        return RendezvousInfo(PrefixStore(self._id, self._store), 0, 1, RendezvousStoreInfo(HERE, self._port))

    def is_closed(self) -> bool:
        """Never before the run ends."""
        return False

    def set_closed(self) -> None:
        """Nobody else is to be told."""

    def num_nodes_waiting(self) -> int:
        """No other machine comes."""
        return 0

    def get_run_id(self) -> str:
        """The key under which torch keeps this meeting."""
        return self._id

    def shutdown(self) -> bool:
        """The store ends with the process."""
        return True
