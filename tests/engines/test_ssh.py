"""Launcher torchrun with hosts: the other node is started over a real ssh, and gone when the run is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.runs import control
from core.runs.process import holders_of
from core.runs.states import read_status
from tests.engines.ssh_server import INSTALL, missing, ssh_server
from tests.faults.conftest import logs, over, until
from tests.faults.test_nodes import assert_clean, has, submit

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(bool(missing()), reason=INSTALL),
]


@pytest.fixture
def port(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server that lets this user in without a password."""
    with ssh_server(tmp_path_factory.mktemp("ssh")) as (number, tools):
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        yield number


def test_a_host_is_started_and_ended_over_ssh(home, port):
    run = submit(home, "train", 1.0, launcher={"hosts": ["127.0.0.1"], "ssh_port": port})
    status = over(run)
    assert status.state == "succeeded", f"{status.reason}{logs(run)}"
    told = (run.path / "nodes" / "1.ssh.txt").read_text()
    assert "waiting for the others" in told and "ended" in told, told
    assert_clean(run)


def test_a_stop_and_a_second_stop_reach_the_host(home, port):
    run = submit(home, "train", 60.0, launcher={"hosts": ["127.0.0.1"], "ssh_port": port})
    until(run, lambda status: has(run, "metric"))
    control.stop(run)
    assert over(run).state == "stopped"
    assert_clean(run)
    deaf = submit(home, "deaf", 600.0, launcher={"hosts": ["127.0.0.1"], "ssh_port": port})
    until(deaf, "running")
    control.stop(deaf)
    control.stop(deaf)
    assert over(deaf).state == "stopped"
    place = deaf.path / "nodes" / "1.alive"
    deadline = time.monotonic() + 120
    while holders_of(place) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert_clean(deaf)


def test_a_host_that_lets_nobody_in_ends_the_run_with_sshs_words(home, port):
    tools = Path(os.environ["PATH"].split(":")[0])
    (tools.parent / "keys").write_text("")
    run = submit(home, "train", 1.0, launcher={"hosts": ["127.0.0.1"], "ssh_port": port})
    status = over(run)
    assert status.state == "failed" and "Node 1 (127.0.0.1) did not come:" in str(status.reason), logs(run)
    assert "Permission denied (publickey" in str(status.reason)
    assert read_status(run).fault == "node_missing"
