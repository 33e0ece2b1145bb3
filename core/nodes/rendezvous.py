"""The training command of one node among several: torchrun's words for meeting, in place of `--standalone`."""

from __future__ import annotations

from collections.abc import Sequence

ALONE = "--standalone"
"""What an engine's command says for several processes of one machine."""


def command_of_node(
    training: Sequence[str], rank: int, nodes: int, endpoint: str, *, key: str, timeout: int
) -> list[str]:
    """The command of node `rank`: it meets the others at `endpoint`, which node 0 opens, and holds the lowest ranks
    if it is node 0.

    Both are said outright. With the c10d backend torchrun 2.13 ranks nodes by the alphabet of their addresses (so
    that 10.0.0.10 comes before 10.0.0.9, and events and checkpoints of the first process from another machine than
    the one that is asked for them), and guesses from host names who opens. Restarts are ours, so there are none of
    torchrun's.
    """
    if ALONE not in training:
        return list(training)
    here = list(training).index(ALONE)
    told = {
        "nnodes": nodes,
        "node-rank": rank,
        "rdzv-backend": "static",
        "rdzv-endpoint": endpoint,
        "rdzv-id": key,
        "rdzv-conf": f"timeout={timeout}",
        "max-restarts": 0,
    }
    words = [word for name, value in told.items() for word in (f"--{name}", str(value))]
    return [*training[:here], *words, *training[here + 1 :]]
