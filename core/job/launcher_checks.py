"""What a launcher needs of a job and of the machine that hands it in; and the machine that the training will see."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from core.job.case import Case, find
from core.job.machine import Gpu, Machine
from core.job.spec import JobSpec
from core.launchers import slurm, torchrun
from data.errors import Finding

UNKNOWN = 1 << 50
"""Bytes of memory that stand for: nobody here knows."""


def elsewhere(job: JobSpec) -> bool:
    """Whether the training runs on machines that this one cannot look at."""
    return job.launcher.name == "slurm"


def machine_of(job: JobSpec, here: Machine) -> Machine:
    """The machine as the training will find it: this one, or what the job asks a cluster for.

    Of a cluster's GPUs neither the memory nor the kind is known before a node is given; they are taken to have bf16.
    """
    spec = job.launcher
    if not isinstance(spec, slurm.Spec):
        return here
    gpu = Gpu(0, spec.gpu_type or "GPU of the cluster", UNKNOWN, UNKNOWN, 8.0, "")
    count = job.hardware.per_node if spec.gpus else 0
    return replace(
        here,
        cores=spec.cpus_per_task or 1024,
        memory=UNKNOWN,
        memory_free=UNKNOWN,
        gpus=tuple(replace(gpu, index=number) for number in range(count)),
        gpu_problem=None,
    )


def launcher_findings(case: Case) -> Iterator[Finding]:
    """What is wrong with where the job is to run."""
    spec, nodes = case.job.launcher, case.job.hardware.nodes
    if isinstance(spec, torchrun.Spec):
        yield from _torchrun(spec, nodes)
    elif isinstance(spec, slurm.Spec):
        yield from _slurm(spec)
        yield from _container(case, spec)


def _torchrun(spec: torchrun.Spec, nodes: int) -> Iterator[Finding]:
    if nodes < 2:
        text = (
            "launcher torchrun is for several machines, and hardware.nodes is 1; set hardware.nodes, or choose "
            "launcher local."
        )
        yield find("launcher_for_several", "error", "launcher.name", spec.name, text, launcher="local")
        return
    if spec.endpoint is None:
        text = (
            f"launcher torchrun with {nodes} nodes needs launcher.endpoint, an address of this machine that the others "
            "reach and a free port, like 10.0.0.1:29500."
        )
        yield find("endpoint_missing", "error", "launcher.endpoint", None, text)
    elif not 1 <= int(spec.endpoint.rpartition(":")[2]) <= 65_535:
        text = f"launcher.endpoint {spec.endpoint} has a port that is not one of 1 to 65,535; choose another."
        yield find("endpoint_port", "error", "launcher.endpoint", spec.endpoint, text)
    if spec.hosts and len(spec.hosts) != nodes - 1:
        text = (
            f"launcher.hosts names {len(spec.hosts)} of the {nodes - 1} other nodes of hardware.nodes {nodes}; name "
            "each once (this machine is node 0), or none."
        )
        yield find("hosts_not_nodes", "error", "launcher.hosts", spec.hosts, text)
    if twice := sorted({host for host in spec.hosts if spec.hosts.count(host) > 1}):
        text = f"launcher.hosts names {', '.join(twice)} more than once; each node is another machine."
        yield find("host_twice", "error", "launcher.hosts", spec.hosts, text)
    if spec.hosts and shutil.which("ssh") is None:
        text = "launcher.hosts needs ssh, which this machine does not have; install it, or leave hosts empty."
        yield find("ssh_missing", "error", "launcher.hosts", spec.hosts, text)


def _slurm(spec: slurm.Spec) -> Iterator[Finding]:
    if shutil.which("sbatch") is None:
        text = (
            "launcher slurm needs sbatch, which this machine does not have; start the job on a login node of the "
            "cluster, or choose launcher local."
        )
        yield find("slurm_missing", "error", "launcher.name", spec.name, text, launcher="local")
    if spec.gpu_type and not spec.gpus:
        text = (
            f"launcher.gpu_type {spec.gpu_type} says nothing with launcher.gpus false; take one of them out."
        )
        yield find("gpu_type_without_gpus", "error", "launcher.gpu_type", spec.gpu_type, text)


def _container(case: Case, spec: slurm.Spec) -> Iterator[Finding]:
    if spec.container is None:
        if spec.mounts:
            text = (
                "launcher.mounts says nothing without launcher.container; take one of them out, or set both."
            )
            yield find("mounts_without_container", "error", "launcher.mounts", spec.mounts, text)
        return
    if case.job.engine.name != "trl":
        text = (
            f"launcher.container trains with the image's own Python, which engine {case.job.engine.name} does not use; "
            "choose engine trl, or leave the container out."
        )
        yield find("container_engine", "error", "launcher.container", spec.container, text, engine="trl")
    odd = [
        path
        for path in (str(slurm.CHECKOUT), str(case.home), *slurm.own_paths(case.job))
        if any(mark in path for mark in ",: \t\n")
    ]
    if odd:
        text = (
            f"launcher.container cannot be given {odd[0]!r}: its path holds a comma, colon or blank; move it."
        )
        yield find("container_path", "error", "launcher.container", odd[0], text)
    if shutil.which("srun") and not srun_has_containers():
        text = (
            "launcher.container needs the option --container-image of srun (pyxis), which this cluster's srun does not "
            "have; ask its administrators for pyxis, or leave the container out."
        )
        yield find("pyxis_missing", "error", "launcher.container", spec.container, text)


@cache
def srun_has_containers() -> bool:
    """Whether srun lists pyxis' option among its own; asked once. One that does not answer is taken to have it."""
    try:
        done = subprocess.run(
            ["srun", "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode != 0 or "--container-image" in done.stdout
