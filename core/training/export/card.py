"""The model card: what was trained, on what, with which settings, how it went, under which licence, how to load it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from core.job.models import EMBEDDED
from core.runs.events import read_events
from core.runs.storage import read_json
from core.training.export.verify import failed

if TYPE_CHECKING:
    from core.training.export.work import Work

CURVES = "curves.png"
SECTIONS = ("How to load", "Data", "Settings", "How it went", "Licence")
INTERESTING = ("loss", "eval_loss", "reward/mean", "learning_rate")
"""Metrics that are drawn, one panel each, where the run has them."""


def make_card(work: Work) -> list[str]:
    """Write README.md and the curves, and read both back; what was verified."""
    write_text(work, work.folder, curves=True)
    return verify_card(work.folder)


def write_text(work: Work, folder: Path, *, curves: bool = False) -> None:
    """README.md in an export's folder, over the one the libraries leave there; with `curves` also the image."""
    metrics = _metrics(work)
    drawn = curves and _draw(metrics, folder / CURVES)
    (folder / "README.md").write_text(card_text(work, metrics, image=drawn), "utf-8")


def verify_card(folder: Path) -> list[str]:
    """The card as others read it. Raises FactoryError naming what is missing."""
    from huggingface_hub import ModelCard

    path = folder / "README.md"
    if not path.is_file():
        raise failed("README.md is missing", file="README.md")
    try:
        card = ModelCard.load(path, ignore_metadata_errors=False)
    except (ValueError, yaml.YAMLError) as problem:
        raise failed(f"README.md has metadata that cannot be read ({problem})", file="README.md") from problem
    told = card.data.to_dict()
    if missing := [name for name in ("library_name", "license", "tags") if not told.get(name)]:
        raise failed(f"README.md lacks {missing[0]} in its metadata", file="README.md")
    if missing := [name for name in SECTIONS if f"## {name}\n" not in card.text]:
        raise failed(f"README.md lacks its section {missing[0]!r}", file="README.md")
    checked = ["card with readable metadata and all its sections"]
    if f"({CURVES})" in card.text:
        _verify_image(folder / CURVES)
        checked.append("curves as a PNG image")
    return checked


def _verify_image(path: Path) -> None:
    if not path.is_file():
        raise failed(f"{path.name} is missing", file=path.name)
    content = path.read_bytes()
    if not content.startswith(b"\x89PNG\r\n\x1a\n") or not content.rstrip().endswith(b"IEND\xaeB`\x82"):
        raise failed(f"{path.name} is no whole PNG image", file=path.name)


def card_text(work: Work, metrics: Mapping[str, list[tuple[int, float]]], *, image: bool) -> str:
    """The card as Markdown with the hub's metadata on top."""
    job, run = work.job, work.run
    title = job.name or run.id
    head = yaml.safe_dump(_metadata(work), sort_keys=False, allow_unicode=True).strip()
    parts = [
        f"---\n{head}\n---\n\n# {title}\n\n{_summary(work)}",
        f"## How to load\n\n{_loading(work)}",
        f"## Data\n\n{_data(work)}",
        f"## Settings\n\n{_settings(work)}",
        f"## How it went\n\n{_outcome(work, metrics, image=image)}",
        f"## Licence\n\n{_licence_words(work)}",
    ]
    return "\n\n".join(parts) + "\n"


def _metadata(work: Work) -> dict[str, Any]:
    job = work.job
    name = job.model.name
    kind = (
        "peft"
        if work.spec.name == "adapter" or getattr(work.spec, "content", None) == "adapter"
        else "transformers"
    )
    data = {
        "license": licence_of(work)[0],
        "library_name": kind,
        "pipeline_tag": "text-classification" if work.source.task == "SEQ_CLS" else "text-generation",
        "tags": ["factory", "trl", job.stage.name, job.method.name],
    }
    if "/" in name and not Path(name).is_dir():
        data["base_model"] = name
    if isinstance(job.data.path, str) and job.data.path.startswith("hub:"):
        data["datasets"] = [job.data.path.removeprefix("hub:").partition("@")[0]]
    return data


def _summary(work: Work) -> str:
    job = work.job
    what = {
        "reward": "A reward model: it gives an answer a score, higher is better",
        "pretrain": "A language model that was pretrained further on raw text",
    }.get(job.stage.name, f"A chat model, tuned with {job.stage.name.upper()}")
    how = f"Base: `{_base(work)}`; method: {job.method.name}"
    return f"{what}. {how}. Trained with TRL through Factory, run `{work.run.id}`."


def _base(work: Work) -> str:
    """The base as others may call it: a path of one machine says nothing to them but its last name."""
    name = work.job.model.name
    return Path(name).name if Path(name).is_absolute() else name


def _loading(work: Work) -> str:
    target, content = work.spec.name, getattr(work.spec, "content", None)
    if "gguf" in (target, content) or target == "ollama":
        return (
            "```sh\nllama-cli -m model.gguf -cnv\n```\n\nor, with a `Modelfile` beside it: "
            "`ollama create NAME -f Modelfile`."
        )
    kind = "AutoModelForSequenceClassification" if work.source.task == "SEQ_CLS" else "AutoModelForCausalLM"
    if "adapter" in (target, content):
        peft = kind.replace("AutoModel", "AutoPeftModel")
        lines = [f"from peft import {peft}", "from transformers import AutoTokenizer", ""]
        lines += [f'model = {peft}.from_pretrained("PATH", dtype="auto")']
    else:
        lines = [f"from transformers import {kind}, AutoTokenizer", ""]
        lines += [f'model = {kind}.from_pretrained("PATH", dtype="auto")']
    lines.append('tokenizer = AutoTokenizer.from_pretrained("PATH")')
    return "```python\n" + "\n".join(lines) + "\n```"


def _data(work: Work) -> str:
    plan = _json(work.run.plan_json)
    files = plan.get("files") or []
    lines = [
        f"- `{Path(file['path']).name}`: {file['bytes']:,} bytes, sha256 `{file['sha256'][:16]}…`"
        for file in files
    ]
    data = work.job.data
    if not lines:
        lines = [f"- {data.path or data.registry or 'several sources'}"]
    if data.eval is not None:
        held = f"{data.eval:.0%} of the rows" if isinstance(data.eval, float) else "a file or rows of its own"
        lines.append(f"- held out for evaluation: {held}")
    return "\n".join(lines)


def _settings(work: Work) -> str:
    job = work.job
    rows: dict[str, Any] = {"stage": job.stage.name, "method": job.method.name}
    for name in ("rank", "alpha", "bits", "init"):
        if (value := getattr(job.method, name, None)) is not None:
            rows[name] = value
    for name in (
        "learning_rate",
        "scheduler",
        "batch_size",
        "gradient_accumulation",
        "epochs",
        "max_steps",
        "seed",
    ):
        if (value := getattr(job.train, name)) is not None:
            rows[name.replace("_", " ")] = value
    for name in ("max_length", "beta", "loss", "num_generations"):
        if (value := getattr(job.stage, name, None)) is not None:
            rows[name.replace("_", " ")] = ", ".join(value) if isinstance(value, list) else value
    versions = _json(work.run.plan_json).get("versions") or {}
    rows |= {name: versions[name] for name in ("torch", "transformers", "trl", "peft") if versions.get(name)}
    return "| setting | value |\n|---|---|\n" + "\n".join(
        f"| {name} | `{value}` |" for name, value in rows.items()
    )


def _outcome(work: Work, metrics: Mapping[str, list[tuple[int, float]]], *, image: bool) -> str:
    lines = []
    for name in INTERESTING[:3]:
        if points := metrics.get(name):
            (first, begun), (last, ended) = points[0], points[-1]
            lines.append(f"- {_plain(name)}: {begun:.4g} at step {first}, {ended:.4g} at step {last}")
    if work.spec.checkpoint is not None:
        lines.append(f"- taken from the checkpoint of step {work.spec.checkpoint}")
    lines = lines or ["- the run logged no numbers"]
    return "\n".join(lines) + (f"\n\n![Curves of the run]({CURVES})" if image else "")


def licence_of(work: Work) -> tuple[str, str]:
    """The licence of the base: the hub's name for it, and a sentence on where that is known from."""
    name = work.job.model.name
    if name in EMBEDDED:
        return EMBEDDED[name].licence.lower(), f"The base `{name}` is under {EMBEDDED[name].licence}."
    folder = work.source.base
    if folder is not None and (folder / "README.md").is_file():
        from huggingface_hub import ModelCard

        try:
            told = ModelCard.load(folder / "README.md").data.to_dict().get("license")
        except (ValueError, yaml.YAMLError):
            told = None
        if isinstance(told, str) and told:
            return told, f"The base `{_base(work)}` is under {told}, as its own card says."
    return (
        "other",
        f"The base `{_base(work)}` does not say its licence; ask its makers before you share this model.",
    )


def _licence_words(work: Work) -> str:
    return f"{licence_of(work)[1]} What was learnt is also bound by the licence of the data."


def _metrics(work: Work) -> dict[str, list[tuple[int, float]]]:
    """The run's interesting numbers by name, each as (step, value), of its whole life."""
    events, _ = read_events(work.run.events)
    found: dict[str, dict[int, float]] = {}
    for event in events:
        if event.event == "metric":
            for name in INTERESTING:
                if name in event.values:
                    found.setdefault(name, {})[event.step] = event.values[name]
    return {name: sorted(points.items()) for name, points in found.items()}


def _draw(metrics: Mapping[str, list[tuple[int, float]]], path: Path) -> bool:
    """The curves as a PNG, a panel each; False when there is nothing to draw."""
    names = [name for name in INTERESTING if len(metrics.get(name, ())) > 1]
    if not names:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(names), 2.6), layout="constrained")
    FigureCanvasAgg(figure)
    for place, name in enumerate(names, start=1):
        axes = figure.add_subplot(1, len(names), place)
        steps, values = zip(*metrics[name], strict=True)
        axes.plot(steps, values, linewidth=1.5, color="#2563eb")
        axes.set_title(_plain(name), fontsize=10)
        axes.set_xlabel("step", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.25, linewidth=0.5)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=120)
    path.write_bytes(image.getvalue())
    return True


def _plain(name: str) -> str:
    return name.replace("_", " ").replace("reward/mean", "mean reward")


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(read_json(path))
    except (OSError, json.JSONDecodeError, ValueError):
        return {}
