"""The acting halves of the launchers that reach beyond this machine. Started by name, by a supervisor or on a node:
`python -m core.nodes.slurm RUN`, `python -m core.nodes.torchrun RUN`, `factory node RUN`. Light: no torch.
"""
