"""The board: pages over the same core functions as the command line. Nothing imports this but `factory board`."""
