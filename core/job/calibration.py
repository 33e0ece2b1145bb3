"""How fast this machine trains: a small table in the home that every finished run improves. Stdlib only.

One row per device, stage, method and engine in HOME/calibration.json: the arithmetic done in a second, from the tokens
per second and the arithmetic for a token; and the seconds before its first step. A newer run counts for a third.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEWEST = 1 / 3
"""What the newest run counts for in the running mean."""

# Dense 16-bit arithmetic in a second as NVIDIA states it; training reaches about a third of it.
PEAK: tuple[tuple[str, float], ...] = (
    ("B300", 2250e12),
    ("B200", 2250e12),
    ("GH200", 989e12),
    ("H200", 989e12),
    ("H100 PCIe", 756e12),
    ("H100", 989e12),
    ("A100", 312e12),
    ("L40", 362e12),
    ("A40", 150e12),
    ("A10", 125e12),
    ("L4", 121e12),
    ("RTX 5090", 210e12),
    ("RTX 4090", 165e12),
    ("RTX 3090", 71e12),
    ("V100", 125e12),
    ("T4", 65e12),
)
REACHED = 0.3
UNKNOWN_GPU = 60e12
CPU_CORE = 15e9
"""fp32 arithmetic of one core in a second, as measured with the embedded model."""
START = {"cpu": 15.0, "gpu": 30.0}
"""Seconds from the start of a run to its first step."""


@dataclass(frozen=True)
class Pace:
    """Arithmetic in a second, seconds before the first step, and on how many runs that rests (0: a guess)."""

    flops: float
    start: float
    runs: int


def pace(home: Path, device: str, cores: int, stage: str, method: str, engine: str = "trl") -> Pace:
    """What is known of a device ("cpu" or a GPU's name) for such a job."""
    row = _read(home).get(_key(device, stage, method, engine))
    if row is not None:
        return Pace(row["flops"], row["start"], row["runs"])
    if device == "cpu":
        return Pace(CPU_CORE * cores, START["cpu"], 0)
    peak = next((flops for name, flops in PEAK if name in device), UNKNOWN_GPU / REACHED)
    return Pace(peak * REACHED, START["gpu"], 0)


def learn(home: Path, plan: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> bool:
    """Take in what a finished run's plan and events say; whether there was something to learn from."""
    from statistics import median

    forecast, job = plan.get("forecast") or {}, plan.get("job") or {}
    work = forecast.get("flops_per_token")
    rates = [rate for one in events if (rate := (one.get("values") or {}).get("tokens_per_second"))]
    begun = next((one for one in events if one.get("event") == "start"), None)
    ready = next((one for one in events if one.get("event") == "ready"), None)
    if not work or not rates or begun is None or ready is None:
        return False
    rate = median(rates[1:] or rates) / _at_once(job, begun)  # the first step warms caches
    engine = (job.get("engine") or {}).get("name") or "trl"
    key = _key(str(begun.get("device")), job["stage"]["name"], job["method"]["name"], engine)
    table = _read(home)
    old = table.get(key)
    new = {"flops": rate * work, "start": float(begun["mono"]) - float(ready["mono"]), "runs": 1}
    if old is not None:
        new = {name: old[name] + (new[name] - old[name]) * NEWEST for name in ("flops", "start")}
        new["runs"] = old["runs"] + 1
    _write(home, {**table, key: new})
    return True


def _at_once(job: Mapping[str, Any], begun: Mapping[str, Any]) -> int:
    """How many devices made the rate together; processes on a CPU share one, and the table is of whole CPUs."""
    hardware = job.get("hardware") or {}
    nodes, devices = hardware.get("nodes") or 1, hardware.get("devices") or 1
    if begun.get("device") == "cpu":
        return int(nodes)
    return int(nodes) * (devices if isinstance(devices, int) else len(devices))


def _key(device: str, stage: str, method: str, engine: str) -> str:
    return f"{device}, {stage}, {method}" + ("" if engine == "trl" else f", {engine}")


def _read(home: Path) -> dict[str, dict[str, Any]]:
    """The table; empty when there is none or it is damaged, as forgetting is always safe."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        rows = json.loads((home / "calibration.json").read_bytes())["rows"].items()
        return {key: row for key, row in rows if _sound(row)}
    return {}


def _sound(row: Any) -> bool:
    return isinstance(row, dict) and all(
        isinstance(row.get(name), (int, float)) and row[name] > 0 for name in ("flops", "start", "runs")
    )


def _write(home: Path, rows: Mapping[str, Any]) -> None:
    temporary = home / f".tmp-{os.getpid()}-calibration.json"
    temporary.write_text(json.dumps({"version": 1, "rows": rows}, indent=1), encoding="utf-8")
    temporary.replace(home / "calibration.json")
