"""What export tests do in a forked child: make an export, with or without a fault planted before it is verified."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.runs import exports
from core.runs.folder import Run


def make(
    run: str,
    spec: dict[str, Any],
    out: str | None = None,
    base: str | None = None,
    fault: str | None = None,
) -> dict[str, Any]:
    """Export in this process; the export as JSON with the exit code. `fault` is the name of one of FAULTS or OTHERS."""
    from core.training.exporting import main

    exports._spawn = lambda *given: None  # type: ignore[assignment] - this process ends with the test
    begun, _ = exports.start(Run(Path(run)), spec, out=Path(out) if out else None, base=base)
    if fault is not None:
        _plant(fault)
    code = main(run, begun.name)
    told = exports.find_export(Run(Path(run)), begun.name)
    assert told is not None
    left = sorted(path.name for path in (Run(Path(run)).exports).glob(".tmp-*"))
    return {**told.to_json(), "code": code, "left": left}


def _plant(fault: str) -> None:
    """Let the named fault happen to the folder just before it is looked at."""
    from core.training.export import card, gguf_check, merged_folder, ollama_folder, peft_folder

    damage = {**FAULTS, **OTHERS}[fault]

    def before(module: Any, name: str, folder_of: Callable[..., Path]) -> None:
        plain = getattr(module, name)

        def damaged(*given: Any, **more: Any) -> Any:
            damage(folder_of(*given))
            return plain(*given, **more)

        setattr(module, name, damaged)

    kind = fault.split(":")[0]
    if kind in ("merged", "adapter"):
        module = merged_folder if kind == "merged" else peft_folder
        before(module, "check_tensors", lambda folder, *_: folder)
    elif kind == "gguf":
        before(gguf_check, "check_header", lambda path, *_: path.parent)
    elif kind == "ollama":
        before(ollama_folder, "verify_modelfile", lambda work, folder: folder)
    else:
        before(card, "verify_card", lambda folder: folder)


def _zero(file: str, tensor: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        tensors = load_file(str(folder / file))
        name = next(one for one in tensors if tensor in one)
        tensors[name] = tensors[name] * 0
        save_file(tensors, str(folder / file), metadata={"format": "pt"})

    return damage


def _without(file: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).unlink()


def _changed(file: str, old: str, new: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        text = (folder / file).read_text("utf-8")
        assert re.search(old, text), f"{file} has no {old}"
        (folder / file).write_text(re.sub(old, new, text), "utf-8")

    return damage


def _fewer_merges(folder: Path) -> None:
    told = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    told["model"]["merges"] = told["model"]["merges"][:20]
    (folder / "tokenizer.json").write_text(json.dumps(told), "utf-8")


def _rewritten(change: Callable[[dict[str, Any], list[Any]], None]) -> Callable[[Path], None]:
    """A GGUF file whose fields or tensors were changed, written anew."""

    def damage(folder: Path) -> None:
        import gguf

        path = folder / "model.gguf"
        reader = gguf.GGUFReader(path)
        architecture = reader.get_field("general.architecture").contents()
        fields = {
            name: (field.contents(), field.types)
            for name, field in reader.fields.items()
            if not name.startswith("GGUF.") and name != "general.architecture"
        }
        tensors = [[tensor.name, tensor.data.copy(), tensor.tensor_type] for tensor in reader.tensors]
        del reader
        change(fields, tensors)
        writer = gguf.GGUFWriter(path, architecture)
        for name, (value, types) in fields.items():
            writer.add_key_value(name, value, types[0], types[-1] if len(types) > 1 else None)
        for name, data, kind in tensors:
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    return damage


def _zero_tensor(fields: dict[str, Any], tensors: list[Any]) -> None:
    one = next(tensor for tensor in tensors if tensor[0] == "blk.0.ffn_up.weight")
    one[1][:] = 0


def _drop_tensor(fields: dict[str, Any], tensors: list[Any]) -> None:
    tensors[:] = [tensor for tensor in tensors if tensor[0] != "blk.1.attn_k.weight"]


def _drop_field(name: str) -> Callable[[dict[str, Any], list[Any]], None]:
    return lambda fields, tensors: fields.pop(name) and None


def _other_rope(fields: dict[str, Any]) -> None:
    fields["llama.rope.freq_base"] = (7.0, fields["llama.rope.freq_base"][1])


FAULTS: dict[str, Callable[[Path], None]] = {
    "merged:tensor": _zero("model.safetensors", "layers.1.mlp.up_proj"),
    "merged:tied": _zero("model.safetensors", "embed_tokens"),
    "merged:eos": _changed("generation_config.json", r'"eos_token_id": \d+', '"eos_token_id": 7'),
    "merged:generation": _without("generation_config.json"),
    "merged:template": _without("chat_template.jinja"),
    "merged:template words": _changed("chat_template.jinja", "assistant", "model"),
    "merged:tokenizer": _fewer_merges,
    "merged:eos token": _changed("tokenizer_config.json", r'"eos_token": "[^"]*"', '"eos_token": "<s>"'),
    "merged:dtype": _changed("config.json", '"dtype": "float32"', '"dtype": "float16"'),
    "merged:config": _changed("config.json", '"rope_theta": [0-9.]+', '"rope_theta": 77.0'),
    "merged:weights file": _without("model.safetensors"),
    "adapter:tensor": _zero("adapter_model.safetensors", "layers.1.mlp.up_proj.lora_B"),
    "adapter:scale": _changed("adapter_config.json", r'"lora_alpha": \d+', '"lora_alpha": 1'),
    "adapter:template": _without("chat_template.jinja"),
    "adapter:eos": _changed("generation_config.json", r'"eos_token_id": \d+', '"eos_token_id": 7'),
    "gguf:tensor": _rewritten(_zero_tensor),
    "gguf:missing tensor": _rewritten(_drop_tensor),
    "gguf:eos": _rewritten(_drop_field("tokenizer.ggml.eos_token_id")),
    "gguf:template": _rewritten(_drop_field("tokenizer.chat_template")),
    "gguf:rope": _rewritten(lambda fields, tensors: _other_rope(fields)),
    "ollama:stop": _changed("Modelfile", r"PARAMETER stop .*\n", ""),
    "ollama:template": _changed("Modelfile", "assistant", "model"),
    "ollama:file": _without("Modelfile"),
    "card:licence": _changed("README.md", r"license: .*\n", ""),
    "card:section": _changed("README.md", "## Data\n", "## Date\n"),
    "card:image": lambda folder: (folder / "curves.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken"),
}
"""What happens to the finished folder before it is verified; named by target and part."""
OTHERS = {"merged:expert": _zero("model.safetensors", "layers.1.block_sparse_moe.experts.3.w1")}
"""Faults of models that the shared runs are not."""


def model_with(folder: str, architecture: str, **more: Any) -> str:
    """A tiny model of another architecture with the tiny tokenizer."""
    import torch
    import transformers

    from tests.tiny import tiny_tokenizer

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = getattr(transformers, f"{architecture}Config")(
        vocab_size=400,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=2,
        pad_token_id=0,
        **sizes,
        **more,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, one in model.named_parameters():
            if name.endswith(("bias", "norm.weight")):
                one.normal_(1.0, 0.2)  # fresh ones are all alike and would hide a mistake
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def in_sixteen_bits(folder: str, target: str) -> str:
    """A copy of a model folder with bf16 weights."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(target)
    AutoTokenizer.from_pretrained(folder).save_pretrained(target)
    return target


def difference(merged: str, base: str, adapter: str | None, kind: str = "CausalLM") -> float:
    """Largest difference of logits between a merged folder and base with adapter, both as a user loads them."""
    import torch
    import transformers
    from peft import PeftModel

    auto = getattr(transformers, f"AutoModelFor{kind}")
    more = {"num_labels": 1} if kind == "SequenceClassification" else {}
    ids = torch.arange(5, 60)[None]
    whole = auto.from_pretrained(merged, dtype=torch.float32).eval()
    worn = auto.from_pretrained(base, dtype=torch.float32, **more)
    worn.config.pad_token_id = 0
    if adapter is not None:
        worn = PeftModel.from_pretrained(worn, adapter)
    with torch.no_grad():
        return float((whole(input_ids=ids).logits - worn.eval()(input_ids=ids).logits).abs().max())


def rendered(folder: str) -> list[str | None]:
    """Chats as the tokenizer in a folder renders them."""
    from transformers import AutoTokenizer

    from core.training.export.reader import CHATS, render

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [render(tokenizer, chat) for chat in CHATS]


def go_templates(names: list[str]) -> dict[str, Any]:
    """For each template: its text in Go's words, and whether all chats come out as the tokenizer renders them."""
    from core.training.export.go_template import go_template, pieces_of
    from core.training.export.go_template import rendered as go
    from core.training.export.ollama_folder import LONGER
    from core.training.export.reader import CHATS, render
    from core.training.model import read_template
    from tests.tiny import tiny_tokenizer

    told = {}
    for name in names:
        tokenizer = tiny_tokenizer(name if "{" in name else read_template(name))
        pieces = pieces_of(tokenizer)
        text = go_template(
            pieces, "<|im_end|>" if "<|im_end|>" in tokenizer.chat_template else tokenizer.eos_token
        )
        chats = [list(chat) for chat in (*CHATS, LONGER)]
        wanted = [render(tokenizer, chat) for chat in chats]
        system = pieces.default_system
        first = [{"role": "system", "content": system}] if system is not None else []
        got = [go(text, chat if chat[0]["role"] == "system" else [*first, *chat]) for chat in chats]
        pairs = [pair for pair in zip(wanted, got, strict=True) if not str(pair[0]).startswith("refused")]
        told[name] = {"text": text, "same": all(a == b for a, b in pairs), "chats": len(pairs)}
    return told


def small_file_limit(run: str, spec: dict[str, Any], most: int) -> dict[str, Any]:
    """Export where no file may grow above `most` bytes, as on a full disk."""
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    return make(run, spec)


def train_without_baseline(job: dict[str, Any], home: str) -> dict[str, Any]:
    """Train without asking the held-out rows before."""
    from core.training import session
    from tests.cpu.jobs import train

    session.held_out_loss = lambda trainer: 0.0  # type: ignore[assignment] - this process ends with the test
    return train(job, home)


def eject(job: dict[str, Any], home: str, folder: str) -> dict[str, Any]:
    """Eject a job; the files, or the codes of a refusal."""
    from core.job.machine import Machine
    from core.job.plan import make_plan
    from core.job.spec import JobSpec
    from core.training.ejecting import eject as write
    from data.errors import FactoryError

    machine = Machine("test", "3", cores=2, memory=8 << 30, memory_free=8 << 30)
    plan = make_plan(JobSpec.model_validate(job), Path(home), machine)
    try:
        return write(plan.job_spec, Path(home), Path(folder))
    except FactoryError as problem:
        return {"refused": [one.code for one in problem.findings]}


def eject_interrupted(job: dict[str, Any], home: str, folder: str) -> list[str]:
    """Eject a job with Ctrl-C after its rows are written; what lies beside the folder then."""
    from core.training import eject_script

    whole = eject_script.script

    def pressed(*given: Any, **more: Any) -> str:
        assert any(path.name == "train.jsonl" for path in Path(folder).parent.rglob("*"))
        raise KeyboardInterrupt

    eject_script.script = pressed
    try:
        eject(job, home, folder)
    except KeyboardInterrupt:
        return sorted(path.name for path in Path(folder).parent.iterdir())
    finally:
        eject_script.script = whole
    raise AssertionError("it was not interrupted")


def run_script(folder: str) -> dict[str, list[float]]:
    """Run an ejected train.py in its folder, with nothing of ours to import; losses and gradient norms it logged."""
    import os
    import runpy
    import sys

    import transformers

    seen: dict[str, list[float]] = {"loss": [], "grad_norm": []}
    logged = transformers.Trainer.log

    def log(self: Any, logs: dict[str, float], *given: Any, **more: Any) -> None:
        if "loss" in logs:
            for name, values in seen.items():
                values.append(logs[name])
        logged(self, logs, *given, **more)

    transformers.Trainer.log = log
    os.chdir(folder)
    here = str(Path(__file__).resolve().parents[2])
    sys.path[:] = [folder, *(path for path in sys.path if path not in ("", here))]
    for name in [name for name in sys.modules if name.split(".")[0] in ("core", "data", "webui")]:
        del sys.modules[name]
    runpy.run_path("train.py", run_name="__main__")
    assert not [name for name in sys.modules if name.split(".")[0] in ("core", "webui")]
    return seen


def gguf_answers(folder: str) -> int:
    """How many tokens transformers' own GGUF reader generates from a file."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file="model.gguf", dtype=torch.float32)
    with torch.no_grad():
        out = model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=4, do_sample=False)
    return int(out.shape[1]) - 3


def little_memory(run: str, spec: dict[str, Any], free: int) -> dict[str, Any]:
    """Export where the machine says that only so many bytes of memory are free."""
    from dataclasses import replace

    from core.training.export import work

    machine = replace(work.this_machine(), memory_free=free)
    work.this_machine = lambda: machine  # type: ignore[assignment] - this process ends with the test
    return make(run, spec)


def pushed(folder: str, private: bool, lost: str | None) -> dict[str, Any]:
    """What a hub is told of a folder, and what is said of it; `lost` names a file that the hub does not keep whole."""
    from types import SimpleNamespace

    import huggingface_hub

    from core.export.hub import Spec
    from core.training.export.hub_repo import _push
    from data.errors import FactoryError

    told: dict[str, Any] = {}

    class Hub:
        def create_repo(self, repo: str, **how: Any) -> None:
            told["made"] = {"repo": repo, **how}

        def upload_folder(self, **how: Any) -> Any:
            told["from"] = str(how["folder_path"])
            return SimpleNamespace(oid="abc")

        def model_info(self, repo: str, **how: Any) -> Any:
            files = [path for path in Path(folder).rglob("*") if path.is_file()]
            names = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
            kept = [(name, size - (name == lost)) for name, size in names.items()]
            return SimpleNamespace(siblings=[SimpleNamespace(rfilename=n, size=s) for n, s in kept])

    huggingface_hub.HfApi = Hub  # type: ignore[misc,assignment] - in a forked child of its own
    spec = Spec(repo="me/lamp", private=private)
    work = SimpleNamespace(spec=spec, folder=Path(folder), notes=[])
    try:
        told["said"] = _push(work, "me/lamp")  # type: ignore[arg-type]
    except FactoryError as error:
        told["refused"] = error.findings[0].message
    return told
