"""The command line: what it prints, its exit codes, its JSON."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from core.cli import MODULES, build_app, main, show
from core.job.load import load_job, parse_job
from core.methods import METHODS
from core.stages import STAGES
from data.errors import FactoryError, Finding

ROOT = Path(__file__).resolve().parents[2]
NAMES = {kind: [m.Spec.model_fields["name"].default for m in kind] for kind in (STAGES, METHODS)}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    chats = (
        [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}."}] for n in range(30)
    )
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    path = tmp_path / "job.yaml"
    path.write_text(f"model: smollm2-135m\ndata: {tmp_path / 'rows.jsonl'}\nstage: sft\n")
    return path


def run(capsys, *words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command."""
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


# check


def test_check_says_that_a_sound_job_can_run(capsys, job):
    assert run(capsys, "check", job) == (0, f"ok  {job} can run.\n", "")


def test_check_tells_faults_of_the_text_and_of_the_machine_together(capsys, job):
    job.write_text(job.read_text() + "modle: 1\ntrain: {keep_best: true}\n")
    code, out, _ = run(capsys, "check", job)
    assert code == 2
    assert "did you mean model?" in out and "train.keep_best  needs held-out data" in out
    assert out.endswith(f"2 errors: {job} would not run.\n")


def test_check_as_json_has_the_keys_that_scripts_rely_on(capsys, job):
    job.write_text(job.read_text() + "train: {keep_best: true}\n")
    code, out, _ = run(capsys, "check", job, "--json")
    answer = json.loads(out)
    assert code == 2 and answer["ok"] is False
    (finding,) = answer["findings"]
    assert list(finding) == ["code", "params", "level", "field", "value", "message", "fix"]
    assert finding["fix"] == {"data.eval": 0.05}


def test_check_takes_overrides(capsys, job):
    job.write_text(job.read_text() + "train: {keep_best: true}\n")
    assert run(capsys, "check", job, "-o", "data.eval=0.2")[0] == 0
    assert run(capsys, "check", job, "-o", "train.keep_best=false", "-o", "train.epochs=1")[0] == 0


def test_check_with_only_warnings_passes(capsys, job):
    code, out, _ = run(capsys, "check", job, "-o", "train.eval_steps=3")
    assert code == 0 and out.startswith("warning") and out.endswith("read the lines above first.\n")


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_check_of_a_missing_file_is_one_clear_error(capsys, tmp_path, json_too):
    code, out, _ = run(capsys, "check", tmp_path / "none.yaml", *json_too)
    assert code == 2 and "There is no job file" in out


def test_a_wrong_job_is_checked_the_same_in_a_fresh_process(job):
    job.write_text(job.read_text() + "stage: sft\n")
    answer = subprocess.run(
        [sys.executable, "-m", "core.cli", "check", job],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (2, "")
    assert answer.stdout.startswith("error  stage  is written twice; keep one (job.yaml, line 4, column 1).")


# new, schema, plan, env


@pytest.mark.parametrize("stage", NAMES[STAGES])
@pytest.mark.parametrize("method", NAMES[METHODS])
def test_a_new_job_is_valid_and_shows_every_field(capsys, stage, method):
    code, out, _ = run(capsys, "new", "--stage", stage, "--method", method)
    job = parse_job(out)
    assert (code, job.stage.name, job.method.name) == (0, stage, method)
    for part in (job.stage, job.method, job.train, job.hardware, job.evaluate):
        for field in type(part).model_fields:
            assert f"  {field}:" in out or f"  #{field}:" in out


def test_a_new_job_says_the_same_when_every_setting_is_let_in(capsys):
    _, out, _ = run(capsys, "new")
    let_in = "\n".join(
        line.replace("  #", "  ", 1) if line.startswith("  #") and line[3] != " " else line
        for line in out.splitlines()
    )
    job = parse_job(let_in)
    assert job.train.epochs == 3 and job.train.learning_rate == 2e-4 and job.method == parse_job(out).method


def test_new_writes_a_file_but_never_over_one(capsys, tmp_path):
    path = tmp_path / "job.yaml"
    assert run(capsys, "new", path, "--data", "my rows.jsonl")[:2] == (
        0,
        f"Wrote {path}. Next: factory check {path}\n",
    )
    assert load_job(path).data.path == "my rows.jsonl"
    code, _, err = run(capsys, "new", path)
    assert code == 2 and "exists already" in err


def test_new_refuses_a_stage_that_does_not_exist(capsys):
    code, _, err = run(capsys, "new", "--stage", "sfd")
    assert code == 2 and "must be one of" in err and 'got "sfd"; did you mean sft?' in err


def test_schema_is_json_with_the_help_of_every_field(capsys):
    _, out, _ = run(capsys, "schema")
    schema = json.loads(out)
    assert schema["required"] == ["model", "data", "stage"]
    parts = [schema, *schema["$defs"].values()]
    assert all(field.get("description") for part in parts for field in part.get("properties", {}).values())


def test_plan_marks_defaults_and_shows_the_command(capsys, job):
    code, out, _ = run(capsys, "plan", job, "--quick", "-o", "train.epochs=2")
    lines = out.splitlines()
    assert code == 0
    assert any(line.split() == ["train.epochs", "2.0"] for line in lines)
    assert any(line.split() == ["·", "train.learning_rate", "0.0002"] for line in lines)
    assert lines[-1].endswith("-m core.training.worker RUN_FOLDER")


def test_plan_as_json_is_the_whole_plan(capsys, job):
    _, out, _ = run(capsys, "plan", job, "--quick", "--json")
    plan = json.loads(out)
    assert plan["job"]["train"]["learning_rate"] == 2e-4 and "train.learning_rate" in plan["defaults"]
    assert plan["argv"][1:3] == ["-m", "core.training.worker"] and plan["files"][0]["sha256"]


def test_plan_of_a_job_that_cannot_run_shows_its_table_and_everything_wrong_and_no_command(capsys, job):
    wrong = ["-o", "hardware.devices=8", "-o", "hardware.strategy=fsdp2", "-o", "engine=unsloth"]
    _, told, _ = run(capsys, "check", job, "--json", *wrong)
    findings = json.loads(told)["findings"]
    code, out, err = run(capsys, "plan", job, *wrong)  # nothing is counted for it
    assert code == 2 and "hardware.strategy" in out and "Command" not in out and "Counting" not in err
    assert sum(one["level"] == "error" for one in findings) >= 2
    assert all(one["message"].split()[-1] in err for one in findings)
    code, out, _ = run(capsys, "plan", job, "--quick", "--json", *wrong)
    plan = json.loads(out)
    assert (code, plan["ok"], plan["findings"]) == (2, False, findings)
    assert plan["job"]["hardware"]["devices"] == 8


def test_plan_of_a_job_without_a_plan_is_all_its_findings(capsys, job):
    code, out, err = run(capsys, "plan", job, "-o", "trian.x=1", "-o", "model=nothing-here")
    assert (code, out) == (2, "") and "did you mean train?" in err and "nothing-here" in err


def test_plan_of_a_job_that_can_run_tells_what_check_tells(capsys, job):
    odd = ["-o", "train.learning_rate=0"]
    code, out, err = run(capsys, "plan", job, "--quick", *odd)
    assert (code, err) == (0, "") and "0 learns nothing" in out and "Command" in out
    _, out, _ = run(capsys, "plan", job, "--quick", "--json", *odd)
    assert (json.loads(out)["ok"], json.loads(out)["findings"][0]["code"]) == (True, "learning_rate_zero")


def test_env_names_versions_and_hardware_and_no_secret(capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_CANARYCANARY")
    code, out, _ = run(capsys, "env")
    assert code == 0 and "torch " in out and "cores " in out
    _, as_json, _ = run(capsys, "env", "--json")
    facts = json.loads(as_json)
    assert {"factory", "python", "cores", "memory", "gpus", "home", "packages"} <= set(facts)
    assert "CANARY" not in out + as_json


def test_home_is_taken_from_the_option_before_the_environment(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FACTORY_HOME", str(tmp_path / "a"))
    assert json.loads(run(capsys, "env", "--json")[1])["home"] == str(tmp_path / "a")
    assert json.loads(run(capsys, "--home", tmp_path / "b", "env", "--json")[1])["home"] == str(
        tmp_path / "b"
    )
    assert json.loads(run(capsys, "env", "--json", "--home", tmp_path / "b")[1])["home"] == str(
        tmp_path / "b"
    )
    assert json.loads(run(capsys, "env", f"--home={tmp_path}", "--json")[1])["home"] == str(tmp_path)


# the frame


def every_command(app: typer.Typer) -> list[Any]:
    """The callbacks of all commands, those of groups included."""
    own = [command.callback for command in app.registered_commands]
    return own + [one for group in app.registered_groups for one in every_command(group.typer_instance)]


def test_every_module_brings_commands_and_every_command_explains_itself():
    commands = every_command(build_app())
    assert {module.__name__ for module in MODULES} == {command.__module__ for command in commands}
    for command in commands:
        assert (command.__doc__ or "").splitlines()[0].endswith("."), command


def test_without_words_the_help_is_printed(capsys):
    code, out, _ = run(capsys)
    assert code == 0 and out.startswith("Usage: factory") and "check" in out


WRONG_WORDS = {
    "nonsense": "factory has no command 'nonsense'; factory -h lists all.",
    "trian x": "factory has no command 'trian'; did you mean train? factory -h lists all.",
    "data inspct": "factory data has no command 'inspct'; did you mean inspect? factory data -h lists all.",
    "check": "factory check needs JOB, a job as YAML or JSON; see factory check -h.",
    "check x --nonsense": "factory check has no option --nonsense; see factory check -h.",
    "chat x --sytem y": "factory chat has no option --sytem; did you mean --system? see factory chat -h.",
    "chat x --max-tokens -3": "factory chat has no option --max-tokens; settings of an answer are written "
    "-s max_tokens=VALUE, see factory chat -h.",
    "chat x -s max_tokens=-3": "max_tokens  must be a whole number from 1 to 131,072, not -3.",
    "chat x --checkpoint last": "--checkpoint  takes a whole number, not 'last'; write such a one, or leave it out.",
    "board more": "factory board does not take 'more'; see factory board -h.",
    "board --port": "--port  has no value behind it; write --port VALUE.",
    "board --port 99999": "--port  takes a whole number from 0 to 65,535, not '99999'; "
    "write such a one, or leave it out for the usual 7860.",
    "serve x --port 99999": "--port  takes a whole number from 0 to 65,535, not '99999'; "
    "write such a one, or leave it out for the usual 8000.",
    "serve x --port 1.5": "--port  takes a whole number from 0 to 65,535, not '1.5'; "
    "write such a one, or leave it out for the usual 8000.",
    "serve x --backend tgi": "--backend  takes transformers or vllm, not 'tgi'; "
    "write such a one, or leave it out for the usual transformers.",
    "logs x -n -4": "--lines  takes a whole number of 0 or more, not '-4'; write such a one, or leave it out for the "
    "usual 40.",
    "fit smollm2-135m --batch 0": "--batch  takes a whole number from 1 to 65,536, not '0'; write such a one, or leave "
    "it out.",
    "export x --checkpoint 0": "--checkpoint  takes a whole number of 1 or more, not '0'; write such a one, or leave "
    "it out.",
}


@pytest.mark.parametrize("words", WRONG_WORDS)
def test_wrong_words_are_one_sentence_that_says_what_to_do(capsys, words):
    assert run(capsys, *words.split()) == (2, "", f"error  {WRONG_WORDS[words]}\n")


def test_wrong_words_are_told_as_json_too(capsys):
    code, out, err = run(capsys, "chat", "x", "--checkpoint", "last", "--json")
    (told,) = json.loads(out)["findings"]
    assert (code, err, told["code"], told["field"], told["value"]) == (
        2,
        "",
        "option_invalid",
        "--checkpoint",
        "last",
    )


def test_every_number_of_the_command_line_is_refused_with_its_range(capsys):
    """Whatever option is added: what typer has to say about it never reaches a user."""
    checked = 0
    for words, command in leaves(typer.main.get_command(build_app())):
        needed = ["x" for one in command.params if one.param_type_name == "argument" and one.required]
        for param in command.params:
            if param.min is None and param.max is None:
                continue
            wrong = param.min - 1 if param.min is not None else param.max + 1
            code, _, err = run(capsys, *words, *needed, param.opts[0], wrong)
            assert code == 2 and "takes a whole number" in err and f"not '{wrong}'" in err, err
            checked += 1
    assert checked > 8


def leaves(command: Any, words: tuple[str, ...] = ()) -> Any:
    """Every command that has no commands of its own, with the words that call it."""
    if not hasattr(command, "commands"):
        yield words, command
    for name, one in getattr(command, "commands", {}).items():
        yield from leaves(one, (*words, name))


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (
            ["board", "--no-token", "--name", "my host"],
            "factory --home {home} board --no-token --name 'my host'",
        ),
        (["serve", "smollm2-135m", "--no-token"], "factory --home {home} serve smollm2-135m --no-token"),
    ],
)
def test_a_taken_port_is_told_with_the_whole_command_for_a_free_one(capsys, tmp_path, words, again):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = run(capsys, "--home", tmp_path, *words, "--port", port)
    assert code == 2 and f"{again.format(home=tmp_path)} --port " in err, err


def test_version_needs_no_command(capsys):
    code, out, _ = run(capsys, "--version")
    assert code == 0 and out.startswith("factory ")


def test_a_fault_of_ours_is_one_sentence_and_a_file(capsys, monkeypatch, job, tmp_path):
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a fault")

    monkeypatch.setattr("core.job.checks.check", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, out, err = run(capsys, "check", job)
    assert code == 1 and "fault of Factory" in err and "Traceback" not in out + err
    (report,) = tmp_path.glob("factory-fault-*.txt")
    assert "KeyError: 'a fault'" in report.read_text()


def test_a_terminal_that_is_not_utf8_shows_an_escape(job):
    answer = subprocess.run(
        [sys.executable, "-m", "core.cli", "plan", "--quick", job],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "iso8859-5"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "") and "\\xb7  train.learning_rate" in answer.stdout


def test_a_reader_that_leaves_early_is_no_fault(job):
    command = f"{sys.executable} -m core.cli schema | head -1"
    answer = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.stdout == "{\n" and answer.stderr == ""


def test_refusals_align_and_put_errors_first(capsys):
    findings = [
        Finding("a", "train.epochs is odd.", "warning", "train.epochs"),
        Finding("b", "name: is written twice.", "error", "name"),
        Finding("c", "Nothing to do with a field.", "error"),
    ]
    show.show_refusal(FactoryError(findings), as_json=False)
    assert capsys.readouterr().err.splitlines() == [
        "error    name          is written twice.",
        "error                  Nothing to do with a field.",
        "warning  train.epochs  is odd.",
    ]


def test_tables_align_numbers_right_and_leave_no_trailing_blanks():
    text = show.table([("a", 1), ("bcd", None)], header=("name", "steps"), right=[1])
    assert text.splitlines() == ["name  steps", "a         1", "bcd       -"]


def test_colours_only_go_to_a_terminal(capsys, monkeypatch):
    assert show.coloured("x", "red") == "x"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert show.coloured("x", "red") != "x"
    monkeypatch.setenv("NO_COLOR", "")
    assert "NO_COLOR" in os.environ and show.coloured("x", "red") == "x"


def test_data_words_with_a_model_read_files_of_the_current_folder(tmp_path, monkeypatch, capsys):
    """The tokenizer's process must look where the user stands, and not import what lies there."""
    from tests.tiny import tiny_tokenizer

    folder = tmp_path / "My Data (1)"
    folder.mkdir()
    tiny_tokenizer().save_pretrained(folder / "model")
    (folder / "model" / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model" / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (folder / "行 1.jsonl").write_text('{"prompt": "a", "completion": "b"}\n', "utf-8")
    (folder / "json.py").write_text("raise SystemExit('imported from the folder of the user')")
    monkeypatch.chdir(folder)
    words = ["--home", "home", "data"]
    assert main([*words, "inspect", "行 1.jsonl", "--model", "model"]) == 0, capsys.readouterr()
    assert main([*words, "preview", "行 1.jsonl", "--model", "model"]) == 0, capsys.readouterr()
    for wrong in (["--stage", "nix"], ["--train-on", "nix"]):
        assert main([*words, "preview", "行 1.jsonl", "--model", "model", *wrong]) == 2
        assert "nix" in capsys.readouterr().err


def test_a_command_that_is_told_can_be_pasted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my job.yaml"]) == 0
    assert capsys.readouterr().out.strip().endswith("factory check 'my job.yaml'")
