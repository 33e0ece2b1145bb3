"""Rewards whose work is done in a limited child: mathematics, gym tasks, patterns, programs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from core.rewards import code
from core.sandbox.child import Child, ChildError, ChildTimeout, answer_each
from data import gym
from data.errors import FactoryError

ALLOWED = {"FACTORY_ALLOW_CODE": "1"}


@pytest.fixture(scope="module")
def cut_off():
    """Skips nothing: says what this system lets a child be cut off from."""
    child = Child("regex", {"pattern": "a", "whole": True, "flags": []})
    child.start()
    missing = child.missing
    child.close()
    return missing


def test_mathematics_is_compared_by_value(bench):
    rows = [
        ("4", "4", 1.0),
        ("so \\boxed{\\frac{1}{3}}", "\\frac{1}{3}", 1.0),
        ("<answer>$\\frac{2}{6}$</answer>", "1/3", 1.0),
        ("x = 0.5", "1/2", 1.0),
        ("the answer is 1,000", "1000", 1.0),
        ("<think>it is 5</think>\\boxed{x^2+1}", "1+x^2", 1.0),
        ("five", "5", 0.0),
        ("\\boxed{6}", "5", 0.0),
        ("", "5", 0.0),
        ("5", ["4", "5"], 1.0),
        ("5", None, None),
    ]
    texts, golds, scores = zip(*rows, strict=True)
    assert bench.score("accuracy", list(texts), answer=list(golds)) == list(scores)
    assert bench.told == []


def test_an_answer_that_computes_for_ever_gets_no_score_and_a_warning(bench):
    reward = {"name": "accuracy", "seconds": 1.0}
    scores = bench.score(reward, ["9^9^9^9^9", "4"], answer=["4", "4"], prompt=["tower", "four"])
    assert scores == [None, 1.0]
    (finding,) = bench.told
    assert (finding.code, finding.level) == ("reward_not_judged", "warning")
    assert "'tower'" in finding.message and "1 s" in finding.message


def test_gym_answers_are_scored_by_their_task_and_cannot_touch_the_machine(bench, tmp_path):
    """One test, for the library takes seconds to load: its scorers of some tasks evaluate the answer as Python."""
    canary = tmp_path / "canary"
    code_in_answer = f"[[__import__('pathlib').Path({str(canary)!r}).write_text('x')]]"
    sources = ("gym:basic_arithmetic?size=2", "gym:countdown?size=2", "gym:binary_matrix?size=1")
    rows = [row for source in sources for row in gym.rows(gym.parse(source))]
    strange = {"prompt": "mine", "answer": "1", "task": "nope", "metadata": "{}"}
    rows += [strange, {**strange, "task": None, "metadata": None}]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    (accuracy,) = bench.build({"name": "accuracy", "mode": "gym"})
    right = [f"<think>hm</think><answer>{row['answer']}</answer>" for row in rows]
    assert accuracy(right, columns) == [1.0] * 5 + [None, None]
    (finding,) = bench.told
    assert finding.code == "reward_not_judged" and "not from gym" in finding.message
    wrong = accuracy(["", "x", "0", "1+", code_in_answer, "", ""], columns)
    assert max(wrong[:5]) < 0.1
    assert not canary.exists()


def test_a_form_is_matched_as_a_whole_or_anywhere(bench):
    texts = ["<think>a\nb</think><answer>4</answer>", "x <think>a</think><answer>4</answer>", "4", ""]
    assert bench.score("format", texts) == [1.0, 0.0, 0.0, 0.0]
    assert bench.score({"name": "format", "match": "anywhere"}, texts) == [1.0, 1.0, 0.0, 0.0]
    assert bench.score({"name": "format", "pattern": "YES", "ignore_case": True}, ["yes"]) == [1.0]


def test_a_wrong_pattern_is_refused_with_the_reason(bench):
    with pytest.raises(FactoryError) as caught:
        bench.build({"name": "format", "pattern": "(a"})
    (finding,) = caught.value.findings
    assert (finding.code, finding.field) == ("bad_pattern", "rewards[0].pattern")
    assert "missing )" in finding.message and "Traceback" not in finding.message


def test_a_catastrophic_pattern_does_not_hang(bench):
    slow = "a" * 60 + "b"
    reward = {"name": "format", "pattern": "(a|aa)+$", "match": "anywhere", "seconds": 0.2}
    assert bench.score(reward, [slow, "aa", "b"]) == [None, 1.0, 0.0]
    assert [one.code for one in bench.told] == ["reward_pattern_slow"]
    with pytest.raises(FactoryError, match="too slow|takes more than"):
        bench.score(reward, [slow] * 64)


def test_a_pattern_that_cannot_even_be_compiled_is_refused(bench):
    with pytest.raises(FactoryError, match="cannot even be compiled"):
        bench.build({"name": "format", "pattern": "(?:(?:(?:a?){1000}){1000}){1000}"})


def test_programs_are_refused_unless_the_operator_allows_them(bench):
    with pytest.raises(FactoryError, match="FACTORY_ALLOW_CODE=1"):
        bench.build("code")
    bench.environ["FACTORY_ALLOW_CODE"] = "yes"
    with pytest.raises(FactoryError, match="FACTORY_ALLOW_CODE=1"):
        bench.build("code")


def test_a_program_is_scored_by_its_tests(bench):
    bench.environ = ALLOWED
    good = "Sure:\n```python\ndef f(x):\n    return x + 1\n```"
    tests = ["assert f(1) == 2", "assert f(1) == 3"]
    columns = {"tests": [tests, tests[0], tests[0], None]}
    texts = [good, good, "no program", good]
    assert bench.score("code", texts, **columns) == [0.0, 1.0, 0.0, None]
    assert bench.score({"name": "code", "score": "share"}, texts, **columns) == [0.5, 1.0, 0.0, None]


def test_a_program_does_not_pass_by_leaving_or_hanging_or_eating(bench):
    bench.environ = ALLOWED
    tricks = [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "raise KeyboardInterrupt",
        "x = 'a' * (8 << 30)",
        "while True: pass",
    ]
    scores = bench.score({"name": "code", "seconds": 1.0}, tricks, tests=["assert True"] * len(tricks))
    assert scores == [0.0] * len(tricks)


def test_a_program_has_the_memory_it_is_given(bench):
    bench.environ = ALLOWED
    hungry = ["x = bytearray(400 << 20)"]
    for memory, score in ((2048, 1.0), (256, 0.0)):
        assert bench.score({"name": "code", "memory_mb": memory}, hungry, tests=["assert x"]) == [score]


def test_a_program_is_cut_off_from_network_disk_and_processes(bench, tmp_path, cut_off):
    bench.environ = ALLOWED
    os.environ["FACTORY_TEST_SECRET"] = "hidden"
    canary = tmp_path / "canary"
    must_fail = {
        "network": "import socket; socket.create_connection(('127.0.0.1', 9), timeout=1)",
        "disk": f"open({str(canary)!r}, 'w')",
        "processes": f"import os; os.kill({os.getpid()}, 0)",
        "environment": "import os; assert os.environ['FACTORY_TEST_SECRET']",
        "others' environment": f"assert b'SECRET' in open('/proc/{os.getpid()}/environ', 'rb').read()",
    }
    may_work = ["open('own.txt', 'w').write('a')", "import math; assert math.sqrt(4) == 2"]
    texts = [*must_fail.values(), *may_work]
    try:
        scores = bench.score("code", texts, tests=["assert True"] * len(texts))
    finally:
        del os.environ["FACTORY_TEST_SECRET"]
    told = [one.params["missing"] for one in bench.told if one.code == "code_not_cut_off"]
    assert told == ([list(cut_off)] if cut_off else []), "what cannot be cut off is told"
    wrong = [name for name, score in zip(must_fail, scores, strict=False) if score != 0.0]
    assert set(wrong) <= {*cut_off, *(["others' environment"] if cut_off else [])}
    assert scores[len(must_fail) :] == [1.0, 1.0]
    assert not canary.exists() or "disk" in cut_off


def test_a_program_that_starts_processes_leaves_none(bench):
    bench.environ = ALLOWED
    bomb = "import os\nfor _ in range(5): os.fork()\nimport time; time.sleep(60)"
    columns = {"tests": ["assert True", "assert f() == 1"]}
    assert bench.score({"name": "code", "seconds": 1.0}, [bomb, "def f(): return 1"], **columns) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("x = 1", "x = 1"),
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("one ```py\nx = 1\n``` two ```python\ny = 2\n``` end", "y = 2\n"),
        ("<think>```python\nx = 1\n```</think>y = 2", "y = 2"),
        ("```python\nx = 1\n``` and ```python\nunclosed", "unclosed"),
    ],
)
def test_the_program_is_the_last_block(completion, program):
    assert code.program_in(completion) == program


def test_tests_are_a_list_its_json_or_one_text():
    assert (
        code.tests_of('["assert 1", "assert 2"]')
        == code.tests_of(["assert 1", "assert 2"])
        == ["assert 1", "assert 2"]
    )
    assert code.tests_of("assert [1] == [1]") == ["assert [1] == [1]"]
    assert code.tests_of("[x for x in y]") == ["[x for x in y]"]
    assert code.tests_of(None) == code.tests_of("") == code.tests_of([]) == []


def test_a_child_that_is_ended_from_outside_is_started_again():
    child = Child("regex", {"pattern": "a", "whole": True, "flags": []})
    assert answer_each(child, ["a", "b"], 5) == [(True, None), (False, None)]
    child._process.kill()
    child._process.wait()
    (first, second) = answer_each(child, ["a", "a"], 5)
    assert first[0] is None and "ended" in first[1] and second == (True, None)
    child.close()


WITHOUT_NAMESPACES = """
import ctypes, os
uid, gid = os.getuid(), os.getgid()
if ctypes.CDLL(None).unshare(0x10000000) == 0:  # a user namespace of our own, that allows no further one
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        open(f"/proc/self/{name}", "w").write(text)
    open("/proc/sys/user/max_user_namespaces", "w").write("0")
import pathlib
from core.rewards import Setting, build_scorers, code
told = []
setting = Setting(pathlib.Path("."), told.append, environ={"FACTORY_ALLOW_CODE": "1"})
(one,) = build_scorers([code.Spec()], setting)
print([(finding.code, finding.level, finding.params["missing"]) for finding in told])
print(one(["def f(): return 1"] * 2, {"tests": ["assert f() == 1", "import os; os._exit(0)"]}))
"""


def test_where_the_system_refuses_it_programs_still_run_and_a_warning_says_what_is_open():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NAMESPACES],
        cwd=Path(code.__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    told, scores = done.stdout.splitlines()
    assert told == "[('code_not_cut_off', 'warning', ['network', 'processes', 'disk'])]"
    assert scores == "[1.0, 0.0]"


def test_a_child_outlives_the_thread_that_started_it():
    child = Child("regex", {"pattern": "a", "whole": True, "flags": []})
    thread = threading.Thread(target=child.start)
    thread.start()
    thread.join()
    assert list(child.ask({"items": ["a"]}, 5)) == [True]
    child.close()


@pytest.mark.parametrize("isolated", [True, False])
def test_a_busy_child_ends_when_its_parent_is_killed(isolated, tmp_path):
    """A parent that is killed closes nothing, and a child inside a match or a user's loop reads nothing."""
    (tmp_path / "busy.py").write_text("def reward(completions):\n    while True: pass")
    task, settings = (
        ("python_tests", {"seconds": 60.0})
        if isolated
        else (
            "python_file",
            {"path": str(tmp_path / "busy.py")},
        )
    )
    program = (
        "from core.sandbox.child import Child\n"
        f"child = Child({task!r}, {settings!r}, isolated={isolated})\n"
        "child.start()\nprint(child._process.pid, flush=True)\n"
        "list(child.ask({'items': [['while True: pass', ['1']]], 'columns': {'completions': ['a']}}, 60))"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], cwd=Path(code.__file__).parents[2], stdout=subprocess.PIPE
    )
    outer = psutil.Process(int(parent.stdout.readline()))
    time.sleep(0.3)
    family = [outer, *outer.children(recursive=True)]
    assert len(family) >= 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []


def test_a_child_leaves_no_folder_and_no_process():
    child = Child("regex", {"pattern": "(a|aa)+$", "whole": False, "flags": []})
    child.start()
    folder, process = Path(child._end.peek()[2][1]), child._process
    assert folder.is_dir()
    with pytest.raises(ChildTimeout):
        list(child.ask({"items": ["a" * 60 + "b"]}, 0.2))
    assert not folder.exists() and process.returncode is not None


def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next():
    child = Child("regex", {"pattern": "a", "whole": True, "flags": []})
    assert next(child.ask({"items": ["a", "a"]}, 5)) is True
    assert list(child.ask({"items": ["b"]}, 5)) == [False]
    child.close()


def test_a_task_that_raises_says_so_in_one_line():
    child = Child("regex", {"pattern": "a", "whole": True, "flags": []})
    with pytest.raises(ChildError, match="TypeError"):
        list(child.ask({"items": [7]}, 5))
    assert list(child.ask({"items": ["a"]}, 5)) == [True], "it goes on after that"
    child.close()
