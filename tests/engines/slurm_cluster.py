"""A Slurm cluster of two nodes on this machine, from Debian's packages: its own munge key, sockets, ports and folders.

Nothing of the system's Slurm is touched, and no service is started: four daemons, each ended by its process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "sbatch", "munged")
INSTALL = "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"


def missing() -> list[str]:
    """The programs of a cluster that are not on this machine."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [name for name in NEEDED if shutil.which(name, path=path) is None]


class Cluster:
    """The daemons and their folder. `environment` is what Slurm's commands need to find them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
        }

    def start(self) -> None:
        """Start munge, the controller and both nodes, and wait until the nodes are idle."""
        self._write()
        self._spawn(
            "munged",
            "--foreground",
            "--force",
            *(f"--{name}={self.folder / file}" for name, file in (
                ("key-file", "munge.key"), ("socket", "munge.sock"), ("pid-file", "munge.pid"),
                ("log-file", "munge.log"), ("seed-file", "munge.seed"))),
            "--num-threads=2",
        )  # fmt: skip
        self._until(lambda: (self.folder / "munge.sock").exists(), "munge")
        self.start_controller()
        for node in ("n1", "n2"):
            self._spawn("slurmd", "-D", "-N", node, "-f", str(self.folder / "slurm.conf"), name=node)
        self._until(
            lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D", "-p", "cpu").strip() == "2",
            "two idle nodes",
        )

    def start_controller(self) -> None:
        """Start slurmctld, and wait until it answers."""
        self._spawn("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        self._until(lambda: "UP" in self.ask("scontrol", "ping"), "slurmctld")

    def end(self, name: str) -> None:
        """End one daemon, which writes down what it knows."""
        daemon = self.daemons.pop(name)
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)

    def stop(self) -> None:
        """Cancel every job and end every daemon."""
        self.ask("scancel", "--state=RUNNING,PENDING", "--user=root")
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.ask("squeue", "-h").strip():
            time.sleep(0.2)
        for daemon in reversed(self.daemons.values()):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(15)
            daemon.kill()
            daemon.wait()

    def ask(self, *argv: str) -> str:
        """What a command of Slurm's prints; its errors too."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr

    def _spawn(self, *argv: str, name: str | None = None) -> None:
        with (self.folder / f"{name or argv[0]}.out").open("ab") as output:
            self.daemons[name or argv[0]] = subprocess.Popen(
                argv,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _until(self, done: object, what: str) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if callable(done) and done():
                return
            time.sleep(0.2)
        logs = "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-800:]}" for path in self.folder.glob("*.out")
        )
        raise AssertionError(f"no {what} within 60 s\n{logs}")

    def _write(self) -> None:
        for name in ("state", "spool-n1", "spool-n2"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.folder.chmod(0o755)  # munge wants every folder above its socket to be like that
        here, (controller, first, second) = socket.gethostname(), _free_ports(3)
        (self.folder / "slurm.conf").write_text(f"""
ClusterName=factory
SlurmctldHost={here}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.sock
CryptoType=crypto/munge
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
SlurmctldPort={controller}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait=5
MinJobAge=300
MessageTimeout=20
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=n1 NodeHostname={here} NodeAddr=127.0.0.1 Port={first} CPUs=1 RealMemory=4000 State=UNKNOWN
NodeName=n2 NodeHostname={here} NodeAddr=127.0.0.1 Port={second} CPUs=1 RealMemory=4000 State=UNKNOWN
PartitionName=cpu Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=closed Nodes=n[1-2] MaxTime=INFINITE State=DOWN
PartitionName=short Nodes=n[1-2] MaxTime=1 State=UP
""")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A running cluster with its files in an empty folder; gone at the end."""
    made = Cluster(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
