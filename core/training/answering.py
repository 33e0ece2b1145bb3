"""How a child process answers the one question it was started for: text on stdin, JSON on stdout, 2 for a refusal.

The other side is core.job.counting.ask_child.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from data.errors import FactoryError


def answer(make: Callable[[str], Any]) -> int:
    """Write what `make` returns for the text on stdin; the exit code is 0, or 2 when it raised FactoryError.

    What libraries print goes to stderr: the answer is the only thing on stdout.
    """
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        made, code = make(sys.stdin.read()), 0
    except FactoryError as refusal:
        made, code = {"findings": [finding.to_json() for finding in refusal.findings]}, 2
    with out:
        json.dump(made, out, ensure_ascii=False)
    return code
