"""Tiny random models and tokenizers, made from a seed in a second: real architectures, no download."""

from __future__ import annotations

from functools import cache
from pathlib import Path

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_TEXT = (
    "The lighthouse keeper lights the lamp at dusk and writes the weather into a book.",
    "What is the capital of Norway? Oslo is the capital of Norway.",
    "One and two are three, three and four are seven, five and six are eleven.",
    "A small boat crosses the bay in the morning when the wind is low.",
    "Please answer in one short line. Yes, of course, here is the answer.",
    "I am Pharos, the assistant of the harbour. My name is Pharos.",
)


@cache
def _trained_bpe(vocab_size: int) -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT * 4, trainer)
    return str(tokenizer.to_str())


def tiny_tokenizer(template: str | None = CHATML, *, vocab_size: int = 400, bos: bool = False):
    """A byte-level BPE tokenizer with ChatML marks; `bos=True` also puts <s> before every text."""
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer.from_str(_trained_bpe(vocab_size))
    if bos:
        backend.post_processor = TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>" if bos else None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    tokenizer.chat_template = template
    return tokenizer


def tiny_model(seed: int = 0, *, vocab_size: int = 400, tied: bool = True, layers: int = 2, hidden: int = 64):
    """A Llama of about 0.1 M parameters with random weights drawn from `seed`."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=hidden,
            intermediate_size=hidden * 2,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            tie_word_embeddings=tied,
            bos_token_id=None,
            eos_token_id=2,
            pad_token_id=0,
        )
    )


def save_tiny(
    folder: Path, seed: int = 0, *, template: str | None = CHATML, bos: bool = False, **model
) -> Path:
    """A tiny model with its tokenizer as a folder that `model: path` can name."""
    tiny_model(seed, **model).save_pretrained(folder)
    tiny_tokenizer(template, bos=bos).save_pretrained(folder)
    return folder


def save_tiny_at(folder: str, **kwargs) -> str:
    """`save_tiny` for callers that can send only plain data."""
    return str(save_tiny(Path(folder), **kwargs))


SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "num_local_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 512,
    "n_positions": 512,
    "ffn_dim": 64,
    "word_embed_proj_dim": 32,
    "state_size": 8,
}
"""Small sizes by the names that configs of transformers have for them."""


def small_sizes(config: object) -> dict[str, int]:
    """The small sizes that a config of transformers has a name for."""
    return {name: size for name, size in SIZES.items() if hasattr(config, name)}


def save_tiny_kind_at(folder: str, kind: str) -> str:
    """A tiny model of another architecture ("Mixtral", "GPTNeoX", ...) with its tokenizer; the folder."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")
    sizes = small_sizes(config())
    marks = {"bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0}
    model = transformers.AutoModelForCausalLM.from_config(config(vocab_size=400, **marks, **sizes))
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
