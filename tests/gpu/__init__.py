"""What only a GPU can show, ready to be run on one: python -m tests.gpu. Nothing here was run by us yet.

pytest collects nothing here. tests/unit/test_gpu_scripts.py runs the dry run in the default tier: every job is built,
checked against a described GPU machine, and its command printed.
"""
