"""Talking to a model: who answers, with which settings, and the process that holds its weights.

This half is light: it reads folders, does arithmetic and speaks JSON lines with `python -m core.training.chat`,
which holds the weights. The command line, the board and the API are three faces of the same `Pool`.
"""
