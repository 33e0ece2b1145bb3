"""Which files a job from the browser may name: a table of paths, for every field that can hold one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.job.machine import this_machine
from core.job.places import PATHS
from core.job.schema import alternatives, job_schema
from core.job.spec import JobSpec
from data.errors import FactoryError
from webui import jobs
from webui.jail import BUNDLED, placed
from webui.settings import Settings

# Text fields that never name a file: chosen names, words, numbers. A new text field must stand here or in PATHS.
NO_PATHS = {
    "name", "model.revision", "data.name", "data.split", "data.subset", "data.revision", "data.format", "data.encoding",
    "data.delimiter", "data.sheet", "data.score", "data.instruction", "data.separator", "data.columns.*", "data.keep[]",
    "data.sources[].name", "data.sources[].split", "data.sources[].subset", "data.sources[].revision",
    "data.sources[].format", "data.sources[].columns.*", "data.sources[].encoding", "data.sources[].delimiter",
    "data.sources[].sheet", "method.target[]", "method.modules_to_save[]", "evaluate.prompts[]",
    "rewards[].script", "rewards[].url", "rewards[].judge_model", "rewards[].key_env", "rewards[].question",
    "rewards[].pattern",
    "method.modules[]", "rewards[].keys[]", "rewards[].tasks[]", "rewards[].opening", "rewards[].closing",
    "rewards[].column", "rewards[].tests", "export[].repo",
    "launcher.endpoint", "launcher.hosts[]", "launcher.interface", "launcher.partition", "launcher.account",
    "launcher.qos", "launcher.reservation", "launcher.time", "launcher.gpu_type", "launcher.memory",
    "launcher.constraint", "launcher.exclude", "launcher.modules[]",
    "launcher.setup[]", "launcher.container", "launcher.mounts[]",
}  # fmt: skip


def text_fields(node: Any, prefix: str = "") -> Iterator[str]:
    """Every dotted field of a job that takes free text."""
    for one in alternatives(node):
        if one.get("type") == "string" and "enum" not in one and "const" not in one:
            yield prefix
        for key, inner in one.get("properties", {}).items():
            yield from text_fields(inner, f"{prefix}.{key}" if prefix else key)
        if "items" in one:
            yield from text_fields(one["items"], f"{prefix}[]")
        if isinstance(one.get("additionalProperties"), dict):
            yield from text_fields(one["additionalProperties"], f"{prefix}.*")


def test_every_text_field_is_known_to_name_a_file_or_not():
    short = {
        "model",
        "data",
        "data.sources[]",
        "stage",
        "method",
        "engine",
        "launcher",
        "rewards[]",
        "data[]",
        "export[]",
    }
    fields = {field for field in text_fields(job_schema())} - short
    unknown = {field for field in fields if field not in NO_PATHS and field not in PATHS}
    assert unknown == set()
    assert set(PATHS) <= fields


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A home with a data file, an operator's folder, and things outside."""
    home = tmp_path / "home"
    (home / "data" / "set").mkdir(parents=True)
    (home / "models" / "mine").mkdir(parents=True)
    row = '{"prompt": "a", "completion": "b"}\n'
    for place in (home / "data" / "rows.jsonl", home / "data" / "set" / "a.jsonl", home / ".board-token"):
        place.write_text(row)
    for folder in ("allowed", "outside", "home-evil"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rows.jsonl").write_text(row)
    (home / "data" / "link.jsonl").symlink_to(tmp_path / "outside" / "rows.jsonl")
    (home / "data" / "out").symlink_to(tmp_path / "outside")
    (home / "data" / "loop").symlink_to(home / "data" / "loop")
    return Settings(home=home, allow=(tmp_path / "allowed",))


def job(field: str, value: Any) -> JobSpec:
    """A small job with one field set."""
    plain: dict[str, Any] = {
        "model": {"name": "smollm2-135m"},
        "data": {"path": "rows.jsonl"},
        "stage": {"name": "sft"},
    }
    if field.startswith("data.sources"):
        plain["data"] = {"sources": [{field.rpartition(".")[2]: value}]}
        if field.endswith("registry"):
            plain["data"]["sources"][0]["name"] = "x"
    elif field == "data.registry":
        plain["data"] = {"registry": value, "name": "x"}
    elif field == "stage.value":
        plain["stage"] = {"name": "ppo", "value": value}
    elif field == "rewards[].source":
        plain["rewards"] = [{"name": "model", "source": value}]
    else:
        part, name = field.split(".")
        plain.setdefault(part, {})[name] = value
    return JobSpec.model_validate_json(json.dumps(plain))


OUTSIDE = (
    "/etc/passwd",
    "/etc",
    "{tmp}/outside/rows.jsonl",
    "{tmp}/home-evil/rows.jsonl",
    "{home}/../outside/rows.jsonl",
    "{home}/data/../../outside/rows.jsonl",
    "{home}/data/link.jsonl",
    "{home}/data/out",
    "{home}/data/out/rows.jsonl",
    "{home}/data/loop",
    "{home}/.board-token",
    "{tmp}/nothing/here",
    "~root/x",
)
DATA_ONLY = (
    "../../outside/rows.jsonl",
    "../.board-token",
    "link.jsonl",
    "out/*.jsonl",
    "*/../../../outside/*.jsonl",
    "{tmp}/out*/rows.jsonl",
    "out",
)


@pytest.mark.parametrize("field", PATHS)
@pytest.mark.parametrize("text", OUTSIDE)
def test_no_field_names_a_file_outside(settings, field, text):
    value = text.format(home=settings.home, tmp=settings.home.parent)
    with pytest.raises(FactoryError) as refused:
        placed(job(field, value), settings)
    found = refused.value.findings[0]
    assert found.code == "path_outside" and found.field is not None
    assert found.field.replace("[0]", "[]") == field


@pytest.mark.parametrize("field", ["data.path", "data.eval", "data.sources[].path"])
@pytest.mark.parametrize("text", DATA_ONLY)
def test_no_pattern_or_link_of_data_leads_outside(settings, field, text):
    with pytest.raises(FactoryError) as refused:
        placed(job(field, text.format(home=settings.home, tmp=settings.home.parent)), settings)
    assert refused.value.findings[0].code == "path_outside"


@pytest.mark.parametrize("text", ["nul\0", "rows.jsonl\0/etc/passwd"])
def test_a_nul_in_a_path_is_refused(settings, text):
    with pytest.raises(FactoryError):
        placed(job("data.path", text), settings)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("data.path", "rows.jsonl"),
        ("data.path", "set"),
        ("data.path", "*.jsonl"),
        ("data.path", "{home}/data/rows.jsonl"),
        ("data.path", "{tmp}/allowed/rows.jsonl"),
        ("data.path", "data/samples/chat.jsonl"),
        ("data.path", "hub:org/name"),
        ("data.path", "gym:basic_arithmetic?size=5"),
        ("data.path", "not there.jsonl"),
        ("data.eval", "rows.jsonl"),
        ("model.name", "smollm2-135m"),
        ("model.name", "org/name"),
        ("model.name", "{home}/models/mine"),
        ("model.template", "chatml"),
        ("rewards[].source", "261129-120000-first-abcd"),
    ],
)
def test_what_is_inside_or_no_file_passes(settings, field, text):
    if text == "*.jsonl":
        (settings.home / "data" / "link.jsonl").unlink()
    placed(job(field, text.format(home=settings.home, tmp=settings.home.parent)), settings)


def test_a_relative_path_means_the_data_folder_and_never_the_servers_own(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "outside")
    assert placed(job("data.path", "rows.jsonl"), settings).data.path == str(
        settings.home / "data" / "rows.jsonl"
    )
    (settings.home / "data" / "rows.jsonl").unlink()
    assert placed(job("data.path", "rows.jsonl"), settings).data.path == str(
        settings.home / "data" / "rows.jsonl"
    )
    (tmp_path / "outside" / "mine").mkdir()
    with pytest.raises(FactoryError):
        placed(job("model.name", "mine"), settings)


def test_a_registry_is_opened_and_its_entry_is_judged(settings, tmp_path):
    entries = {
        "x": {"file_name": "rows.jsonl", "columns": {"prompt": "prompt", "response": "completion"}},
        "out": {"file_name": str(tmp_path / "outside" / "rows.jsonl")},
        "up": {"file_name": "../../outside/rows.jsonl"},
        "hub": {"hf_hub_url": "org/name"},
    }
    (settings.home / "data" / "dataset_info.json").write_text(json.dumps(entries))

    def of(name: str) -> JobSpec:
        return JobSpec.model_validate_json(
            json.dumps(
                {
                    "model": "smollm2-135m",
                    "stage": "sft",
                    "data": {"registry": "dataset_info.json", "name": name},
                }
            )
        )

    frozen = placed(of("x"), settings).data
    assert (frozen.path, frozen.registry, frozen.name) == (
        str(settings.home / "data" / "rows.jsonl"),
        None,
        None,
    )
    assert frozen.columns == {"instruction": "prompt", "output": "completion"}
    assert placed(of("hub"), settings).data.path == "hub:org/name"
    for name in ("out", "up"):
        with pytest.raises(FactoryError) as refused:
            placed(of(name), settings)
        assert refused.value.findings[0].code == "path_outside"


def test_what_lies_outside_is_refused_in_the_same_words_whether_it_is_there(settings, tmp_path):
    def words(text: str) -> str:
        (finding,) = jobs.findings_of(
            f"model: smollm2-135m\nstage: sft\ndata: {text}\n", settings, this_machine()
        )
        return finding.message.replace(text, "")

    assert words(str(tmp_path / "outside" / "rows.jsonl")) == words(
        str(tmp_path / "outside" / "nothing.jsonl")
    )


def test_the_bundled_samples_are_there():
    assert all(folder.is_dir() for folder in BUNDLED)


def test_a_job_from_the_board_logs_in_only_to_machines_that_the_operator_named(settings, monkeypatch):
    hosts = ["gpu-2", "root@gpu-3"]
    plain = {
        "model": "smollm2-135m",
        "data": "rows.jsonl",
        "stage": "sft",
        "hardware": {"nodes": 3},
        "launcher": {"name": "torchrun", "endpoint": "10.0.0.1:29500", "hosts": hosts},
    }
    asked = JobSpec.model_validate(plain)
    monkeypatch.setenv("FACTORY_HOSTS", "gpu-2")
    with pytest.raises(FactoryError) as refused:
        placed(asked, settings)
    assert [(one.code, one.field, one.value) for one in refused.value.findings] == [
        ("host_outside", "launcher.hosts[1]", "root@gpu-3")
    ]
    monkeypatch.setenv("FACTORY_HOSTS", "gpu-2, root@gpu-3")
    assert placed(asked, settings).launcher == asked.launcher


def test_a_job_from_the_board_brings_a_cluster_no_shell_lines_no_folders_and_no_image_but_the_operators(
    settings, monkeypatch
):
    plain = {
        "model": "smollm2-135m",
        "data": "rows.jsonl",
        "stage": "sft",
        "launcher": {"name": "slurm", "setup": ["source x"], "container": "a/b:1", "mounts": ["/etc"]},
    }
    asked = JobSpec.model_validate(plain)
    with pytest.raises(FactoryError) as refused:
        placed(asked, settings)
    assert [(one.code, one.field) for one in refused.value.findings] == [
        ("not_from_board", "launcher.setup"),
        ("not_from_board", "launcher.mounts"),
        ("image_outside", "launcher.container"),
    ]
    monkeypatch.setenv("FACTORY_IMAGES", "x/y:2, a/b:1")
    named = JobSpec.model_validate({**plain, "launcher": {"name": "slurm", "container": "a/b:1"}})
    assert placed(named, settings).launcher == named.launcher
