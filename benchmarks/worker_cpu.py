"""Our worker, which also prints its CPU-seconds at every step: `python benchmarks/worker_cpu.py RUN_DIR`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main(run_dir: str) -> int:
    """Run the worker; one line of JSON per step, as the hand-written script prints."""
    from core.training import callbacks, worker

    plain = callbacks.RunCallback.on_log

    def on_log(self: Any, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "loss" in (logs or {}):
            record = {"t": time.time(), "cpu": time.process_time(), "step": state.global_step}
            print(json.dumps({**record, "loss": logs["loss"], "tokens": logs["num_tokens"]}), flush=True)
        plain(self, args, state, control, logs=logs, **kwargs)

    callbacks.RunCallback.on_log = on_log  # type: ignore[method-assign]
    return worker.main(run_dir)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
