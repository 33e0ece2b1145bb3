"""Rows to token ids on disk: what the trainer reads, cached under everything that decides it.

`prepare` has the child read and render, encodes the pieces, cuts or splits at max_length, holds rows out, packs,
and writes Arrow files that `datasets.Dataset.from_file` maps into memory. Nothing is held per token in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from data.child import ask_child
from data.errors import FactoryError, Finding, refuse
from data.settings import DataSettings
from data.sources import Resolved, resolve, total_bytes
from data.voice import Voice

VERSION = 2
"""Part of the cache key: raised when the same input would give other ids or another report."""

Emit = Callable[[Finding], None]


@dataclass(frozen=True)
class PrepareSettings:
    """How rows become sequences. Lengths in tokens."""

    max_length: int = 2048
    packing: bool = False
    split_long: bool = False
    """Long documents become several sequences; nothing is cut off."""
    train_on: str = "assistant"
    turns: str | None = None
    eval: float | str | None = None
    seed: int = 42
    stage: str | None = None

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> PrepareSettings:
        """Settings from a mapping with some of the fields."""
        return cls(**{key: value for key, value in plain.items() if value is not None})


@dataclass(frozen=True)
class Prepared:
    """The files to train on: Arrow streams with input_ids, labels (-100 = not learnt) and, when packed, seq_lengths."""

    train: Path
    eval: Path | None
    report: dict[str, Any]
    cached: bool = False

    @property
    def rows(self) -> int:
        """Training sequences per epoch."""
        return int(self.report["counts"]["train"]["sequences"])

    @property
    def prompts(self) -> list[str]:
        """Up to three questions of the data, to see what training changes."""
        return list(self.report["prompts"])

    @property
    def findings(self) -> list[Finding]:
        """What is worth telling the user about these rows."""
        return [Finding(**{**one, "params": one["params"] or {}}) for one in self.report["findings"]]


def prepare(
    data: Mapping[str, Any] | DataSettings,
    needs: Sequence[str],
    tokenizer: Any,
    settings: Mapping[str, Any] | PrepareSettings,
    cache_dir: Path,
    emit: Emit = lambda finding: None,
) -> Prepared:
    """The rows of `data` as token ids for a stage that needs one of the shapes `needs`.

    Every finding goes to `emit` (also for a cached result). Raises FactoryError when there is nothing to train on.
    """
    how = settings if isinstance(settings, PrepareSettings) else PrepareSettings.from_plain(settings)
    wish = data if isinstance(data, DataSettings) else DataSettings.from_plain(data)
    if how.turns is not None:
        wish = replace(wish, choices=replace(wish.choices, turns=how.turns))
    how = replace(how, eval=wish.eval if how.eval is None else how.eval, turns=None)
    resolved = resolve(wish)
    held_out = _held_out_source(wish, how)
    voice = Voice.of(tokenizer)
    model = tokenizer_text(tokenizer)
    key = cache_key([*resolved, *held_out], wish, needs, model, voice, how)
    folder = cache_dir / key
    if not (folder / "report.json").exists():
        _build(folder, resolved, held_out, wish, needs, tokenizer, model, voice, how, emit, cache_dir)
        made = _load(folder, cached=False)
    else:
        made = _load(folder, cached=True)
    for finding in made.findings:
        emit(finding)
    return made


def _held_out_source(wish: DataSettings, how: PrepareSettings) -> list[Resolved]:
    if not isinstance(how.eval, str):
        return []
    source = replace(wish.sources[0], path=how.eval, registry=None, name=None, take=None, weight=1.0)
    return resolve(replace(wish, sources=(source,)))


def cache_key(
    resolved: Sequence[Resolved],
    wish: DataSettings,
    needs: Sequence[str],
    tokenizer: str,
    voice: Voice,
    how: PrepareSettings,
) -> str:
    """A name for everything that decides the ids: file contents, tokenizer (as text), template, settings, version."""
    digest = hashlib.sha256()
    plain = {
        "version": VERSION,
        "choices": asdict(wish.choices),
        "too_long": wish.too_long,
        "sources": [{**asdict(one.source), "path": None, "registry": None} for one in resolved],
        "needs": list(needs),
        "voice": voice.to_plain(),
        "how": asdict(how),
        # A template that prints today's date gives other ids tomorrow.
        "day": time.strftime("%Y-%m-%d") if voice.template and "strftime_now" in voice.template else "",
    }
    digest.update(json.dumps(plain, sort_keys=True, default=str).encode("utf-8", "surrogatepass"))
    digest.update(tokenizer.encode("utf-8", "surrogatepass"))
    for one in resolved:
        for file in one.files:
            digest.update(file_hash(Path(file)).encode())
    return digest.hexdigest()[:40]


def tokenizer_text(tokenizer: Any) -> str:
    """Everything that decides a tokenizer's ids, as text: its backend, or its vocabulary where it has none."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return str(backend.to_str())
    return json.dumps(
        [type(tokenizer).__name__, tokenizer.get_vocab(), tokenizer.init_kwargs], sort_keys=True, default=str
    )


def file_hash(path: Path) -> str:
    """SHA-256 of a file's content. Raises FactoryError when it cannot be read."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise refuse(
            "data_unreadable",
            f"{path} cannot be read ({error.strerror}).",
            field="data.path",
            value=str(path),
        ) from None


def _load(folder: Path, cached: bool) -> Prepared:
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    held_out = folder / "eval.arrow"
    return Prepared(folder / "train.arrow", held_out if held_out.exists() else None, report, cached)


def _build(
    folder: Path,
    resolved: Sequence[Resolved],
    held_out: Sequence[Resolved],
    wish: DataSettings,
    needs: Sequence[str],
    tokenizer: Any,
    model: str,
    voice: Voice,
    how: PrepareSettings,
    emit: Emit,
    cache_dir: Path,
) -> None:
    """Fill a folder beside its final name, then give it that name: a half-made one is never seen."""
    from data.spool import Spool
    from data.tokens import Encoder

    making = cache_dir / f".making-{folder.name}-{os.getpid()}"
    shutil.rmtree(making, ignore_errors=True)
    try:
        making.mkdir(parents=True)
        encoder = Encoder(tokenizer, emit, cache_dir / "proofs", model)
        with (
            Spool(making, how, wish.too_long) as spool,
            Spool(making, how, wish.too_long, "held-out") as other,
        ):
            for frame in _ask(resolved, wish, needs, voice, how, tokenizer.name_or_path):
                spool.add(frame, encoder)
            for frame in _ask(held_out, wish, needs, voice, how, tokenizer.name_or_path) if held_out else ():
                other.add(frame, encoder)
            report = spool.finish(other if held_out else None)
        report["way"] = encoder.way
        (making / "report.json").write_text(json.dumps(report, ensure_ascii=False), encoding="utf-8")
        try:
            making.rename(folder)
        except OSError:
            # Another process made the same rows meanwhile; theirs are as good.
            if not (folder / "report.json").exists():
                raise
    except OSError as error:
        raise FactoryError(
            Finding(
                "data_cache_unwritable",
                f"The prepared rows cannot be written to {cache_dir} ({error.strerror or error}): "
                "free some space or choose another home folder.",
                "error",
                "home",
                str(cache_dir),
            )
        ) from None
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _ask(
    resolved: Sequence[Resolved],
    wish: DataSettings,
    needs: Sequence[str],
    voice: Voice,
    how: PrepareSettings,
    model: str,
) -> Any:
    request = {
        "do": "pieces",
        "sources": [one.to_plain() for one in resolved],
        "needs": list(needs),
        "choices": asdict(wish.choices),
        "stage": how.stage,
        "model": model,
        "voice": voice.to_plain(),
        "train_on": how.train_on,
        "seed": how.seed,
    }
    return ask_child(request, total_bytes(resolved))
