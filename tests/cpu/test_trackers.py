"""Metrics in trackers that are packages of their own, for real and offline; skipped where a package is not there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.cpu.conftest import chats, write_rows
from tests.cpu.test_sft import job
from tests.zygote import Zygote

WRITTEN = {
    "wandb": "home/runs/*/wandb/offline-run-*/*.wandb",
    "swanlab": "home/runs/*/swanlab/*/*",
    "trackio": "trackio/*.db",
    "mlflow": "home/mlflow.db",
}
"""What each leaves behind, and where."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("tracker", WRITTEN)
def test_metrics_also_go_to_a_tracker_offline(
    tmp_path: Path, tracker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec(tracker) is None:
        pytest.skip(f"the package {tracker} is not installed")
    offline = {
        "WANDB_MODE": "offline",
        "SWANLAB_MODE": "offline",
        "TRACKIO_DIR": str(tmp_path / "trackio"),
    }
    for name, value in offline.items():
        monkeypatch.setenv(name, value)
    before = set(Path().iterdir())
    zygote = Zygote()  # its own, with this environment
    try:
        tiny = zygote.call("tests.tiny:save_tiny_at", folder=str(tmp_path / "tiny"))
        rows = write_rows(tmp_path / "rows.jsonl", chats(30))
        asked = job(tiny, rows, method="full", report_to=[tracker])
        done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(tmp_path / "home"))
    finally:
        zygote.close()
    assert done["code"] == 0, done["events"][-1]
    assert list(tmp_path.glob(WRITTEN[tracker]))
    assert set(Path().iterdir()) == before  # nothing of it lies in the checkout
