"""The training command of one node among several: torchrun's words for meeting, in place of `--standalone`."""

from __future__ import annotations

from collections.abc import Sequence

ALONE = "--standalone"
"""What an engine's command says for several processes of one machine."""


def command_of_node(
    training: Sequence[str],
    rank: int,
    nodes: int,
    endpoint: str,
    *,
    key: str,
    timeout: int,
    address: str | None = None,
) -> list[str]:
    """The command of node `rank`: it meets the others at `endpoint`, which node 0 opens.

    Who opens it is said outright: torchrun's own guess compares host names, and where a name leads to 127.0.0.1
    nobody opens it and all wait in vain (tried). `address` is this node's own, for the same reason. Restarts are
    ours, so there are none of torchrun's.
    """
    if ALONE not in training:
        return list(training)
    here = list(training).index(ALONE)
    settings = f"is_host={int(rank == 0)},join_timeout={timeout},read_timeout={timeout},timeout={timeout}"
    words = [
        "--nnodes",
        str(nodes),
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        endpoint,
        "--rdzv-id",
        key,
        "--rdzv-conf",
        settings,
        "--max-restarts",
        "0",
        *(["--local-addr", address] if address else []),
    ]
    return [*training[:here], *words, *training[here + 1 :]]
