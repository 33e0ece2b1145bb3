"""Target ollama: model.gguf and the Modelfile that makes Ollama write what the model was trained on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from core.training.export import card
from core.training.export.gguf_file import FILE, write_gguf
from core.training.export.gguf_vocab import Vocabulary
from core.training.export.go_template import Untranslatable, go_template, pieces_of, rendered
from core.training.export.reader import CHATS, render
from core.training.export.verify import failed
from core.training.export.work import Work
from data.errors import refuse

MODELFILE = "Modelfile"
CONTEXT = 8192
"""Tokens of context that Ollama sets aside memory for, at most; a model with less gets what it has."""
LONGER = (
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
    {"role": "assistant", "content": "d {{ x }}"},
    {"role": "user", "content": "e"},
)


def make_ollama(work: Work) -> list[str]:
    """Write both files and verify them; what was verified."""
    text = modelfile(work)  # a template that cannot be said ends it before the long work
    verified = write_gguf(work, work.spec.quant)
    (work.folder / MODELFILE).write_text(text, "utf-8")
    card.write_text(work, work.folder)
    return [*verified, verify_modelfile(work, work.folder)]


def modelfile(work: Work) -> str:
    """FROM, TEMPLATE, SYSTEM where the chat template has a default, stop words, parameters. Raises FactoryError."""
    source = work.source
    tokenizer, config = source.tokenizer, source.config()
    lines = [f"FROM ./{FILE}"]
    if tokenizer.chat_template:
        ends = [tokenizer.convert_ids_to_tokens(number) for number in source.ends()]
        try:
            pieces = pieces_of(tokenizer, without=_begin(work))
            turn = source.turn_end()
            mark = tokenizer.convert_ids_to_tokens(turn) if turn is not None else None
            template = go_template(pieces, mark)
        except Untranslatable as problem:
            raise refuse(
                "ollama_template",
                f"The chat template cannot be said in Ollama's words ({problem}); export as gguf, which carries the "
                "template itself.",
            ) from problem
        lines.append(f'TEMPLATE """{template}"""')
        if pieces.default_system is not None:
            lines.append(f'SYSTEM """{pieces.default_system}"""')
    else:
        ends = [tokenizer.eos_token] if tokenizer.eos_token else []
        lines.append('TEMPLATE """{{ .Prompt }}"""')
    lines += [f'PARAMETER stop "{end}"' for end in ends]
    lines.append(f"PARAMETER num_ctx {min(CONTEXT, config.max_position_embeddings)}")
    return "\n".join(lines) + "\n"


def _begin(work: Work) -> str:
    """The begin mark, where llama.cpp puts it in by itself."""
    source = work.source
    vocabulary = Vocabulary(source.tokenizer, source.folder, source.config().vocab_size)
    return str(source.tokenizer.bos_token) if vocabulary.begins_with_mark() else ""


def verify_modelfile(work: Work, folder: Path) -> str:
    """The Modelfile read back: its file is there, it stops where answers end, and it renders chats as the tokenizer.

    Raises FactoryError naming what differs.
    """
    source, tokenizer = work.source, work.source.tokenizer
    path = folder / MODELFILE
    if not path.is_file():
        raise failed("Modelfile is missing", file=MODELFILE)
    told = parse(path.read_text("utf-8"))
    if told["FROM"] != [f"./{FILE}"] or not (folder / FILE).is_file():
        raise failed(f"Modelfile's FROM does not name {FILE}", file=MODELFILE)
    stops = told["stop"]
    for number in source.ends():
        if (end := tokenizer.convert_ids_to_tokens(number)) not in stops:
            raise failed(f"Modelfile has no stop word {end!r}, at which answers end", file=MODELFILE)
    if not tokenizer.chat_template:
        return "Modelfile with its stop words; there is no chat template to render"
    begin = _begin(work)
    count = 0
    for chat in (*CHATS, LONGER):
        expected = render(tokenizer, list(chat))
        if expected is None or expected.startswith("refused: "):
            continue
        system = [{"role": "system", "content": one} for one in told["SYSTEM"] if chat[0]["role"] != "system"]
        try:
            found = rendered("".join(told["TEMPLATE"]), [*system, *chat])
        except (Untranslatable, ValueError, IndexError) as problem:
            raise failed(f"Modelfile's TEMPLATE cannot be read ({problem})", file=MODELFILE) from problem
        if begin + found != expected:
            raise failed(
                f"Modelfile's TEMPLATE renders {found[:60]!r}, not {expected[:60]!r}", file=MODELFILE
            )
        count += 1
    return f"Modelfile: {len(stops)} stop words, and {count} chats rendered as the tokenizer does"


def parse(text: str) -> dict[str, Any]:
    """The instructions of a Modelfile: FROM, TEMPLATE, SYSTEM and stop words, each as a list of texts."""
    found: dict[str, list[str]] = {"FROM": [], "TEMPLATE": [], "SYSTEM": [], "stop": []}
    pattern = r'^(FROM|TEMPLATE|SYSTEM) (?:"""(.*?)"""|(\S+))$|^PARAMETER stop "(.*?)"$'
    for match in re.finditer(pattern, text, re.DOTALL | re.MULTILINE):
        name, quoted, bare, stop = match.groups()
        found["stop" if name is None else name].append(
            stop if name is None else (bare if quoted is None else quoted)
        )
    return found
