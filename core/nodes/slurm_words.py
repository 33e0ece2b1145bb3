"""What Slurm says about a job, parsed, and in words. Formats: manuals of squeue, scontrol and sacct of Slurm 22.05."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

WAITING = (
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "SPECIAL_EXIT",
    "SUSPENDED",
    "STOPPED",
)
LIVE = (*WAITING, "RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING")
"""States of a job that is not over; all others are ends."""

REASONS: Mapping[str, str] = {
    "None": "Slurm has not looked at it yet",
    "Priority": "jobs with higher priority go first",
    "Resources": "it waits for nodes to become free",
    "Dependency": "it waits for another job",
    "BeginTime": "its time to begin has not come",
    "Licenses": "it waits for a licence",
    "Reservation": "it waits for its reservation",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "NodeDown": "a node that it needs is down",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition starts no jobs at present",
    "PartitionNodeLimit": "it asks for more nodes than the partition gives to one job; lower hardware.nodes",
    "PartitionTimeLimit": "it asks for more time than the partition gives; lower launcher.time",
    "PartitionConfig": "the partition does not have what it asks for",
    "BadConstraints": "no node has what it asks for; change launcher.constraint, memory or GPUs",
    "JobHeldUser": "it is held; its user releases it with scontrol release",
    "JobHeldAdmin": "it is held by an administrator",
    "InvalidAccount": "the account is not valid; change launcher.account",
    "InvalidQOS": "the quality of service is not valid; change launcher.qos",
    "launch failed requeued held": "a node failed to start it, and it is held",
}
"""Why a job waits. Every other reason of Slurm's (there are over a hundred) is shown under its own name."""
LIMITS = re.compile(r"^(QOS|Assoc|Association|Max|MaxJobs)")


@dataclass(frozen=True)
class Job:
    """A job of Slurm's as it said it is."""

    state: str
    """Slurm's own name: PENDING, RUNNING, COMPLETED, TIMEOUT ..."""
    reason: str = "None"
    """Slurm's own word for why it waits or ended."""
    nodes: str = ""
    """The nodes it has: n[1-2]."""
    partition: str = ""
    exit: int | None = None
    """Exit code of its script."""
    signal: int | None = None
    """The signal that ended its script."""

    @property
    def live(self) -> bool:
        """Whether it waits or runs."""
        return self.state in LIVE

    @property
    def waiting(self) -> bool:
        """Whether it does not run yet, or not at present."""
        return self.state in WAITING


def from_squeue(text: str) -> Job | None:
    """The job that `squeue --noheader --Format=...` or our `-o '%T|%r|%N|%P'` printed; None when it printed none."""
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 4 and re.fullmatch(r"[A-Z_]+", parts[0]):
            return Job(parts[0], parts[1] or "None", "" if parts[2] == "(null)" else parts[2], parts[3])
    return None


def from_scontrol(text: str) -> Job | None:
    """The job that `scontrol show job --oneliner` printed; None when it printed none."""
    state = _value(text, "JobState")
    if state is None:
        return None
    code, signal = _exit(_value(text, "ExitCode"))
    nodes = _value(text, "NodeList") or ""
    reason = re.search(r"\bReason=(.*?) Dependency=", text)
    return Job(
        state,
        reason[1] if reason else _value(text, "Reason") or "None",
        "" if nodes == "(null)" else nodes,
        _value(text, "Partition") or "",
        code,
        signal,
    )


def from_sacct(text: str) -> Job | None:
    """The job that `sacct -X -n -P -o State,ExitCode,NodeList` printed; None when it printed none."""
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) == 3 and parts[0]:
            code, signal = _exit(parts[1])
            return Job(parts[0].split()[0], "None", parts[2], exit=code, signal=signal)
    return None


def _value(text: str, key: str) -> str | None:
    found = re.search(rf"(?:^|\s){key}=(\S*)", text)
    return found[1] if found else None


def _exit(text: str | None) -> tuple[int | None, int | None]:
    code, _, signal = (text or "").partition(":")
    return (int(code) if code.isdigit() else None), (
        int(signal) if signal.isdigit() and signal != "0" else None
    )


def why_it_waits(job: Job) -> str:
    """Why a job does not run, as the end of a sentence, with Slurm's own word: `Resources: it waits for ...`."""
    told = job.reason.strip("()").split(",")[0].strip()
    if job.state == "SUSPENDED":
        return "it is suspended by Slurm"
    if job.state == "CONFIGURING":
        return "its nodes are being made ready"
    words = REASONS.get(told)
    if words is None and LIMITS.match(told):
        words = "a limit of the account, the quality of service or the partition is reached"
    return f"{told}: {words}" if words else told or "no reason told"


ENDINGS: Mapping[str, tuple[str, str]] = {
    "TIMEOUT": (
        "slurm_timeout",
        "reached its time limit; raise launcher.time, then resume it",
    ),
    "DEADLINE": ("slurm_timeout", "was ended at its deadline"),
    "OUT_OF_MEMORY": (
        "out_of_memory",
        "used more memory than it had asked for; raise launcher.memory or lower the batch",
    ),
    "NODE_FAIL": ("slurm_node_failed", "was ended since a node failed"),
    "BOOT_FAIL": ("slurm_node_failed", "was ended since a node did not boot"),
    "PREEMPTED": ("slurm_preempted", "was ended in favour of a job with higher priority"),
    "REVOKED": ("slurm_cancelled", "was revoked"),
}
"""How a job may end besides by its own exit code: our code for it, and what is said."""


def how_it_ended(number: str, job: Job) -> tuple[str, str] | None:
    """Code and sentence for a job that did not end by itself; None for one that did, or that was cancelled."""
    if job.state not in ENDINGS:
        return None
    code, words = ENDINGS[job.state]
    nodes = f" on {job.nodes}" if job.nodes else ""
    return code, f"Slurm job {number}{nodes} {words}."
