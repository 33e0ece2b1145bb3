"""Several training processes as one: `python -m core.training.ranks TORCHRUN... -m core.training.worker RUN_DIR`.

torch's own launcher starts them and ends the others when one fails. This process stands between them and whoever
started it: it passes a request to stop on, keeps the run's locks alive in them, says who failed and why, and ends like
one training process: 0 done, 1 failed, 2 refused in words, 3 stopped when asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.runs.folder import Run
from core.runs.process import inherited_locks
from core.training.world import folder_of
from data.errors import Finding

DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 3
PATIENCE = 10.0
"""Seconds that the others get to end by themselves when one has failed; some wait in C for the one that is gone."""


@dataclass
class Child:
    """One training process: its rank, and how and when it ended."""

    rank: int
    process: subprocess.Popen[bytes]
    code: int | None = None
    """Exit code, or minus the signal."""
    at: float = 0.0
    """Wall clock of its end."""
    put_down: bool = False
    """Whether it was ended from here."""


class Ranks:
    """The training processes that this one started."""

    def __init__(self, keep: Sequence[int]) -> None:
        self.children: list[Child] = []
        self.asked = False
        self._keep = tuple(keep)

    def pass_on(self, number: int, frame: Any) -> None:
        """Take SIGTERM: they save and stop, and this process waits for them."""
        self.asked = True
        if not self.children:
            os._exit(STOPPED)
        for child in self.children:
            if child.code is None:
                with contextlib.suppress(ProcessLookupError):
                    child.process.send_signal(signal.SIGTERM)

    def start(self, words: Sequence[str], env: dict[str, str], **streams: Any) -> subprocess.Popen[bytes]:
        """Start one, holding the same locks as this process, and watch it."""
        environment = {**env, "FACTORY_RANKS_PID": str(os.getpid())}
        process = subprocess.Popen(
            words, env=environment, start_new_session=True, pass_fds=self._keep, **streams
        )
        child = Child(int(env["RANK"]), process)
        self.children.append(child)
        threading.Thread(target=self._watch, args=(child,), daemon=True).start()
        if self.asked:  # between two starts
            process.send_signal(signal.SIGTERM)
        return process

    def _watch(self, child: Child) -> None:
        """Note the end of one at once and in order, and give the others a limit if it failed."""
        with contextlib.suppress(ChildProcessError):
            ended = os.waitid(os.P_PID, child.process.pid, os.WEXITED | os.WNOWAIT)
            if ended is not None:
                child.at = time.time()
                child.code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        if child.code:
            time.sleep(PATIENCE)
            self._end_others()

    def _end_others(self) -> None:
        for child in self.children:
            if child.code is None:
                child.put_down = True
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.process.pid, signal.SIGKILL)


def main(words: Sequence[str]) -> int:
    """Start the processes that torchrun's arguments ask for, stay with them, and end as they did."""
    run = Run(Path(words[-1]))
    ranks = Ranks(inherited_locks())
    signal.signal(signal.SIGTERM, ranks.pass_on)
    problem: Exception | None = None
    logs = folder_of(run) / f"logs-{os.getpid()}"
    try:
        launch(words, ranks, logs)
    except Exception as failure:
        problem = failure
    finally:
        for folder in (logs, logs.with_name("extensions")):
            shutil.rmtree(folder, ignore_errors=True)
    code, findings = verdict(run, ranks, problem)
    if code in (FAILED, REFUSED):
        _tell(run, findings)
    return code


def launch(words: Sequence[str], ranks: Ranks, logs: Path) -> None:
    """Run torchrun's own machinery on its own arguments. Raises its ChildFailedError, or what hinders the start."""
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing import api
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

    class Ours(SubprocessHandler):
        """torch 2.13 closes every inherited descriptor in its children: a run's locks would not live in them."""

        def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> subprocess.Popen[bytes]:
            return ranks.start(args, env, stdout=self._stdout, stderr=self._stderr)

    api.get_subprocess_handler = Ours
    arguments = torchrun.parse_args(list(words))
    if arguments.standalone:
        from core.training.loopback import stay_here

        stay_here(arguments)
    arguments.max_restarts = 0  # a run goes on from its checkpoint, in a new attempt
    arguments.signals_to_handle = "SIGQUIT"  # SIGTERM is ours: torch would end the processes without a save
    count = torchrun.determine_local_world_size(arguments.nproc_per_node)
    arguments.log_dir = str(logs)
    logs.mkdir(parents=True)
    # The first one writes to the run's log itself; what the others say comes with their number before it.
    arguments.tee = ",".join(f"{number}:3" for number in range(1, count)) or "0"
    os.environ["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = "[rank ${rank}] "
    # What DeepSpeed compiles stays with this run: the lock of a build that was killed would hang every later one.
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(logs.with_name("extensions")))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, _cores() // count)))
    torchrun.run(arguments)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def verdict(run: Run, ranks: Ranks, problem: Exception | None) -> tuple[int, list[Finding]]:
    """The exit code, and what to tell: what the process that failed first has said, or how it was ended."""
    words = {child.rank: _word_of(run, child.rank) for child in ranks.children}
    failed = [child for child in ranks.children if child.code]
    if not failed and problem is None:
        stopped = any(word.get("outcome") == "stopped" for word in words.values())
        return (STOPPED if stopped else DONE), []
    blamed = [child for child in failed if _is_to_blame(child, words[child.rank], ranks)]
    if not blamed and (ranks.asked or run.stop_file.exists()):
        return STOPPED, []
    if not blamed:
        return FAILED, [_nobodys(failed, problem)]
    first = min(blamed, key=lambda child: float(words[child.rank].get("at", child.at)))
    word = words[first.rank]
    if word.get("findings"):
        findings = [Finding(**one) for one in word["findings"]]
        return (REFUSED if word.get("refused") else FAILED), [_of_rank(first.rank, one) for one in findings]
    return FAILED, [_died(first, len(words))]


def _is_to_blame(child: Child, word: dict[str, Any], ranks: Ranks) -> bool:
    """Whether it failed by itself: not ended from here, nor because another one was gone."""
    if child.put_down or word.get("outcome") in ("lost", "stopped"):
        return False
    return child.code != -signal.SIGTERM or not (ranks.asked or len(ranks.children) > 1)


def _word_of(run: Run, rank: int) -> dict[str, Any]:
    """What a process left word of when it ended; empty when it could not."""
    try:
        word: dict[str, Any] = json.loads((folder_of(run) / f"rank-{rank}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return word


def _of_rank(rank: int, finding: Finding) -> Finding:
    from dataclasses import replace

    return finding if rank == 0 else replace(finding, message=f"rank {rank}: {finding.message}")


def _died(child: Child, count: int) -> Finding:
    """How a process ended that could not say so itself."""
    import resource

    from core.runs.outcome import Exit, memory_limit, oom_kills, signal_sentence

    assert child.code is not None
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    ended = Exit(child.code, peak, oom_kills())
    how = f"was {signal_sentence(ended)}" if child.code < 0 else f"ended with exit code {child.code}"
    hungry = child.code == -signal.SIGKILL and peak > memory_limit() / 2
    code = "out_of_memory" if hungry else "rank_died"
    text = f"rank {child.rank} of the {count} processes here {how}; the others were ended with it."
    return Finding(code, text, params={"rank": child.rank, "exit": child.code})


def _nobodys(failed: Sequence[Child], problem: Exception | None) -> Finding:
    if failed:
        text = f"rank {failed[0].rank} lost its connection to another process; see log.txt of the other machines."
        return Finding("rank_lost", text, params={"rank": failed[0].rank})
    said = (str(problem).strip().splitlines() or [""])[0][:300]
    text = f"the training processes could not be started together ({type(problem).__name__}: {said})."
    return Finding("ranks_not_started", text)


def _tell(run: Run, findings: Sequence[Finding]) -> None:
    """Write what ended the run into its events, once all processes are gone; on another node, say it to node 0."""
    if os.environ.get("FACTORY_NODE"):
        sys.stdout.write(
            "".join(f"{one.message}\n" for one in findings)
        )  # its last words, which core.nodes sends
        return
    from core.runs.cards import card_for
    from core.runs.checkpoints import clean
    from core.runs.courier import events_file
    from core.runs.events import Error, EventWriter

    clean(run)
    writer = EventWriter(events_file(run))
    for one in findings:
        card = card_for(run, one.code)
        writer.emit(
            Error(
                code=one.code, message=one.message, field=one.field, advice=card.to_json() if card else None
            )
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
