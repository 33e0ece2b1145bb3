"""The training process as its parent sees it: started so that nothing of it can outlive the run. Stdlib only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ALLOWED = frozenset(
    "PATH HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR SHELL LD_LIBRARY_PATH LIBRARY_PATH VIRTUAL_ENV CONDA_PREFIX "
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY "
    "TOKENIZERS_PARALLELISM CC CXX SLURM_CONF SLURM_CLUSTERS".split()
)
ALLOWED_BEGINNINGS = tuple(
    "LC_ HF_ CUDA_ NVIDIA_ NCCL_ GLOO_ SBATCH_ OMP_ MKL_ OPENBLAS_ TORCH_ PYTORCH_ TRITON_ TRANSFORMERS_ XDG_ "
    "FACTORY_".split()
)
SECRET = ("HF_TOKEN", "HF_HUB_TOKEN", "FACTORY_TOKEN")
"""Begin like allowed names, but travel only when the plan names them."""
LOCKS = ("alive", ".slot")
"""Ends of the names of files that a run holds locked as long as anything of it lives."""
SET_ANEW = ("FACTORY_EVENTS", "FACTORY_NODE", "FACTORY_RANKS_PID")
"""Say which part of a run a process is; one started from inside of another run must not take itself for its part."""
_SET_PDEATHSIG, _SET_SUBREAPER = 1, 36
"""prctl numbers, from linux/prctl.h."""


def environment(
    given: Mapping[str, str], named: Sequence[str], slots: Sequence[str], home: Path
) -> dict[str, str]:
    """What the training process gets: an allow-list, the names its plan asks for, and its devices."""
    allowed = {
        name: value
        for name, value in given.items()
        if name in ALLOWED or (name.startswith(ALLOWED_BEGINNINGS) and name not in (*SECRET, *SET_ANEW))
    }
    allowed |= {name: given[name] for name in named if name in given}
    # Threads that wait for each other spin by default; with anything else running on the same cores that makes
    # training several times slower (2 cores, load 7: a step of SmolLM2 24 s spinning, 8 s asleep).
    allowed.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    allowed |= {
        "FACTORY_HOME": str(home),
        "PYTHONUTF8": "1",  # in the C locale even the command line could not be decoded
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    if gpus := [slot.removeprefix("gpu") for slot in slots if slot.startswith("gpu")]:
        # PCI order makes CUDA count as nvidia-smi does, or two runs would meet on one card.
        allowed |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    return allowed


def adopt_orphans() -> None:
    """Become the parent of every process that a descendant leaves behind. Linux only; elsewhere does nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_SUBREAPER, 1, 0, 0, 0)


def start(
    argv: Sequence[str], folder: Path, env: Mapping[str, str], log: Path, keep: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start the training process in a group of its own, its output straight to `log`, `keep` left open in it.

    On Linux it gets SIGTERM when this process dies, is the first to go when memory runs out, and leaves no core
    file. Raises OSError when it cannot be started.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            list(argv),
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(keep),
            process_group=0,
            preexec_fn=_child_setup(os.getpid()) if sys.platform == "linux" else None,
        )


def inherited_locks() -> list[int]:
    """The descriptors of a run's locks that whoever started this process left open in it; none without /proc."""
    folder = Path("/proc/self/fd")
    found = []
    for link in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(OSError):  # the descriptor of this very look
            number = int(link.name)
            if number > 2 and os.get_inheritable(number) and str(link.readlink()).endswith(LOCKS):
                found.append(number)
    return found


def end_group(group: int, number: int) -> None:
    """Send a signal to a whole process group that is not reaped yet; one that is gone is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def descendants(root: int) -> list[int]:
    """All processes below `root`, from /proc; empty where there is none."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def sweep(patience: float) -> int:
    """End every process below this one: after `patience` seconds SIGTERM, as long again later SIGKILL.

    Returns how many had to be signalled. Only for a process that adopted its orphans and whose own child is
    reaped.
    """
    began = time.monotonic()
    signalled: set[int] = set()
    while _reap() and (rest := descendants(os.getpid())):
        waited = time.monotonic() - began
        if waited > 2 * patience:
            _signal_all(rest, signal.SIGKILL)
            signalled |= set(rest)
        elif waited > patience and not signalled:
            _signal_all(rest, signal.SIGTERM)
            signalled |= set(rest)
        if waited > 2 * patience + 30:
            break  # in an uninterruptible wait; the locks they hold stay held
        time.sleep(0.02)
    return len(signalled)


def holders_of(path: Path) -> list[int]:
    """This user's processes that have the file open, found through /proc."""
    try:
        wanted = path.stat()
    except FileNotFoundError:
        return []
    return [pid for pid, _ in _parents() if pid != os.getpid() and _has_open(pid, wanted)]


def end_orphans(alive: Path, grace: float) -> int:
    """End the processes that still hold a lost run's `alive` file: SIGTERM, after `grace` seconds SIGKILL.

    A pid is only trusted while a descriptor of the process itself is held (pidfd), so a reused pid is never
    signalled. Returns how many there were.
    """
    found = {pid: descriptor for pid in holders_of(alive) if (descriptor := _open_pid(pid)) is not None}
    still = alive.stat() if found else None
    for pid, descriptor in list(found.items()):
        if still is None or not _has_open(pid, still):  # ended, and the number went to someone else
            os.close(found.pop(pid))
        else:
            _signal_pidfd(descriptor, signal.SIGTERM)
            _signal_pidfd(descriptor, signal.SIGCONT)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and any(_has_open(pid, still) for pid in found if still):
        time.sleep(0.05)
    for descriptor in found.values():
        _signal_pidfd(descriptor, signal.SIGKILL)
        os.close(descriptor)
    return len(found)


def _child_setup(parent: int) -> Callable[[], None]:
    import resource

    libc = ctypes.CDLL(None, use_errno=True)  # loaded here: nothing may be imported between fork and exec

    def setup() -> None:
        libc.prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above could see it
            os._exit(1)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")

    return setup


def _parents() -> list[tuple[int, int]]:
    found = []
    for path in Path("/proc").iterdir() if Path("/proc/self").exists() else ():
        if path.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                text = (path / "stat").read_text(encoding="utf-8", errors="replace")
                words = text.rpartition(")")[2].split()
                if words[0] != "Z" or int(words[1]) == os.getpid():
                    found.append((int(path.name), int(words[1])))
    return found


def _reap() -> bool:
    """Collect ended children; True while there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _signal_all(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found = link.stat()
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return True
    return False


def _open_pid(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def _signal_pidfd(descriptor: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(descriptor, number)
