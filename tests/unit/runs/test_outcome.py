"""How a run ended, in words; and what the supervisor knows of its training process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.runs import gpus, outcome, process, queue
from core.runs.control import CHECKOUT
from core.runs.events import read_events
from core.runs.folder import create_run
from core.runs.outcome import Exit, Said, judge
from core.runs.reasons import Reason, because
from core.runs.states import Book, new_record, read_status
from data.errors import FactoryError

GIB = 1 << 30


@pytest.mark.parametrize(
    ("peak", "kills", "words"),
    [
        (23.1, 0, "killed by signal 9, most likely out of memory: peak 23.1 GiB of 24"),
        (0.5, 1, "killed by signal 9, most likely out of memory: peak 0.5 GiB of 24"),
        (0.5, 0, "killed by signal 9, by someone or for want of memory (peak 0.5 GiB of 24)"),
    ],
)
def test_signal_9_is_told_with_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peak: float, kills: int, words: str
) -> None:
    monkeypatch.setattr(outcome, "memory_limit", lambda: 24 * GIB)
    run = create_run(tmp_path, "", {}, {})
    ended = Exit(-9, int(peak * GIB), kills)
    state, reason = judge(run, ended, Said(ready=True), asked=False, forced=False)
    assert (state, reason) == ("failed", words)
    code = "killed_for_memory" if "most likely" in words else "killed_by_someone"
    sizes = {"peak": f"{peak} GiB", "limit": "24 GiB"}
    assert isinstance(reason, Reason) and reason.told == {"code": code, "params": sizes}


def test_a_refusal_of_the_training_process_is_the_reason(tmp_path: Path) -> None:
    run = create_run(tmp_path, "", {}, {})
    said = Said(ready=True)
    said.hear(
        {"event": "error", "code": "data_empty", "message": "The data is empty.", "params": {"rows": 0}}
    )
    state, reason = judge(run, Exit(2, 0, 0), said, asked=False, forced=False)
    assert (state, reason) == ("failed", "The data is empty.")
    assert isinstance(reason, Reason) and reason.told == {
        "code": "data_empty",
        "params": {"rows": 0, "field": None, "value": None},
    }


def test_a_reason_is_kept_with_its_code_by_which_other_languages_tell_it(tmp_path: Path) -> None:
    run = create_run(tmp_path, "", {}, {})
    book = Book(run, new_record(run, {}, {}) | {"attempt": 1})
    book.enter("queued")
    assert read_status(run).why == {"code": "supervisor_gone", "params": {"state": "queued"}}
    book.enter("stopped", because("cancelled", "cancelled while it waited in the queue"))
    status = read_status(run)
    assert (status.reason, status.why) == (
        "cancelled while it waited in the queue",
        {"code": "cancelled", "params": {}},
    )
    assert [(one.state, one.code) for one in read_events(run.events, 0)[0]] == [
        ("queued", None),
        ("stopped", "cancelled"),
    ]


def test_a_run_that_ends_well_just_as_it_is_stopped_has_succeeded(tmp_path: Path) -> None:
    from core.runs.checkpoints import commit

    run = create_run(tmp_path, "", {}, {})
    run.model.mkdir()
    commit(run.model, 1, "")
    assert judge(run, Exit(0, 0, 0), Said(ready=True, done=True), asked=True, forced=False) == (
        "succeeded",
        None,
    )


def test_the_grace_is_a_minute_or_what_the_run_needs_by_its_own_pace() -> None:
    said = Said()
    assert said.grace() == 60
    for mono, record in [
        (1.0, {"event": "start", "total_steps": 9}),
        (31.0, {"event": "metric", "step": 1}),
        (111.0, {"event": "metric", "step": 3}),
        (131.0, {"event": "checkpoint", "step": 3}),
    ]:
        said.hear({**record, "mono": mono})
    assert (said.longest_step, said.last_save, said.total_steps) == (40.0, 20.0, 9)
    assert said.grace() == 3 * 40 + 2 * 20


def test_memory_of_this_machine_is_known() -> None:
    assert 1 * GIB < outcome.memory_limit() < 1 << 50


def test_the_training_process_gets_allowed_names_and_secrets_only_by_name() -> None:
    given = {
        "PATH": "/bin",
        "AWS_SECRET": "x",
        "HF_TOKEN": "hf_x",
        "HF_HOME": "/h",
        "WANDB_API_KEY": "w",
        "LC_ALL": "C",
    }
    got = process.environment(given, ["WANDB_API_KEY", "MISSING"], ["gpu2", "gpu0"], Path("/home"))
    assert got["CUDA_VISIBLE_DEVICES"] == "2,0" and got["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert got["WANDB_API_KEY"] == "w" and got["HF_HOME"] == "/h" and got["LC_ALL"] == "C"
    assert got["PYTHONUTF8"] == "1" and not {"AWS_SECRET", "HF_TOKEN", "MISSING"} & set(got)
    assert process.environment({"HF_TOKEN": "t"}, ["HF_TOKEN"], [], Path("/h"))["HF_TOKEN"] == "t"
    assert "CUDA_VISIBLE_DEVICES" not in process.environment({}, [], ["cpu0"], Path("/h"))


def test_foreign_processes_are_told_per_slot() -> None:
    numbers = [["0", "GPU-aa"], ["3", "GPU-bb"]]
    apps = [
        ["GPU-bb", "4242", "11500", "/usr/bin/python"],
        ["GPU-bb", "7", "[N/A]", "a", "b"],
        ["GPU-cc", "1", "1", "x"],
    ]
    found = gpus.match(numbers, apps)
    assert found == {"gpu3": [gpus.Process(4242, "/usr/bin/python", 11500), gpus.Process(7, "a, b", 0)]}


def test_nvidia_smi_is_asked_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\ncase $1 in *gpu=*) echo '0, GPU-aa';; *) echo 'GPU-aa, 99, 512, python';; esac\n",
        encoding="utf-8",
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.foreign_processes() == {"gpu0": [gpus.Process(99, "python", 512)]}
    tool.write_text("#!/bin/sh\nexit 9\n", encoding="utf-8")
    assert gpus.foreign_processes() == {}
    monkeypatch.setenv("PATH", "")
    assert gpus.foreign_processes() == {}


def test_company_on_a_gpu_is_told_and_an_empty_gpu_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"gpu0": [gpus.Process(99, "python", 512)]}
    monkeypatch.setattr(gpus, "foreign_processes", lambda: found)
    words = "gpu0 is also used by python (pid 99, 512 MiB), which is no run of Factory: memory may run out."
    assert gpus.company(["gpu0", "gpu1"]) == [words]
    assert gpus.company(["gpu1"]) == gpus.company(["cpu0"]) == []
    line, run = queue.Queue(tmp_path / "slots"), tmp_path / "run"
    fds = []
    for number, wanted in enumerate(["gpu1", "gpu0"]):
        line.enter(queue.Wish(("gpu0", "gpu1")), run, str(number), lambda ticket: 1)
        grant = line.try_take(str(number), run)
        assert isinstance(grant, queue.Grant) and list(grant.slots) == [wanted]
        fds += grant.slots.values()
    for descriptor in fds:
        os.close(descriptor)


def test_cuda_visible_devices_narrows_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_gpu_numbers", lambda: [0, 1, 2, 3])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert queue.slot_names() == ["gpu0", "gpu1", "gpu2", "gpu3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert queue.slot_names() == ["gpu3", "gpu1"]
    wish = queue.wish_for([1])
    assert (wish.slots, wish.count) == (("gpu1",), 1)
    with pytest.raises(FactoryError, match="names gpu0, but this machine offers gpu3, gpu1"):
        queue.wish_for([0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("FACTORY_CPU_SLOTS", "2")
    assert queue.slot_names() == ["cpu0", "cpu1"]


def test_without_kernel_locks_everything_imports_and_a_start_is_refused_in_words(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['fcntl'] = None\n"
        "import core.cli, core.runs.supervisor, core.runs.process, core.runs.outcome, core.runs.listing\n"
        "from core.runs import control\n"
        "from data.errors import FactoryError\n"
        "from pathlib import Path\n"
        "assert core.cli.main(['--home', sys.argv[1], 'runs']) == 0\n"
        "try: control.submit(Path(sys.argv[1]), '', {}, {'argv': []})\n"
        "except FactoryError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=CHECKOUT
    )
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.splitlines()[-1]
        == "Training runs need Linux or macOS: this system has no kernel file locks."
    )
