"""What tests of fused passes do in a forked child."""

from __future__ import annotations

from typing import Any

from tests.cpu.jobs import train


def _counted(function: type) -> list[int]:
    """A list that grows with every use of an autograd function in this process."""
    seen: list[int] = []
    plain = function.apply

    def apply(*given: Any) -> Any:
        seen.append(1)
        return plain(*given)

    function.apply = apply  # type: ignore[attr-defined] - this process ends with the test
    return seen


def train_counting(job: dict[str, Any], home: str) -> dict[str, Any]:
    """Train, with the number of losses, of layers, and of batches of prompts that went the short way."""
    from core.training import adapter_layer, head_loss, shared_prompts

    heads, layers = _counted(head_loss._HeadLoss), _counted(adapter_layer._Adapted)
    prompts: list[int] = []
    read = shared_prompts._Generate._read

    def counted(self: Any, input_ids: Any, attention_mask: Any) -> Any:
        prompts.append(len(input_ids))
        return read(self, input_ids, attention_mask)

    shared_prompts._Generate._read = counted  # type: ignore[method-assign] - this process ends with the test
    return {**train(job, home), "heads": len(heads), "layers": len(layers), "prompts": prompts[1:]}


def head_losses(tokens: int) -> dict[str, list[Any]]:
    """Loss, right guesses, entropy and gradients of one batch: exact (float64), by trl, and by us."""
    import torch
    import torch.nn.functional as F

    from core.training import head_loss

    torch.manual_seed(0)
    states, weight = torch.randn(2, tokens, 32), torch.randn(700, 32)
    labels = torch.randint(0, 700, (2, tokens))
    labels[0, : tokens // 2] = -100
    labels[1, -1] = -100
    items = int((labels[:, 1:] != -100).sum()) * 2  # as if one more batch belonged to the step

    def exact(h: Any, w: Any) -> Any:
        wanted = labels[:, 1:].reshape(-1)
        logits = (h[:, :-1] @ w.t()).reshape(-1, 700)[wanted != -100]
        wanted = wanted[wanted != -100]
        share = logits.softmax(-1)
        right = (logits.argmax(-1) == wanted).sum()
        entropy = -(share * share.log()).sum()
        return F.cross_entropy(logits, wanted, reduction="sum") / items, right, entropy, len(wanted)

    def one(function: Any, precision: Any) -> list[Any]:
        h, w = (value.to(precision).requires_grad_() for value in (states.clone(), weight.clone()))
        loss, right, entropy, count = function(h, w)
        (loss * 3).backward()
        return [
            float(loss.detach()),
            float(right),
            float(entropy.detach()),
            float(count),
            h.grad.flatten().tolist(),
            w.grad.flatten().tolist(),
        ]

    def given(function: Any) -> Any:
        return lambda h, w: function(h, w, 256, labels=labels, num_items_in_batch=torch.tensor(items))

    names = ("loss", "right", "entropy", "count", "gradient of states", "gradient of weight")
    ways = [
        one(exact, torch.float64),
        one(given(head_loss._library_loss), torch.float32),
        one(given(head_loss.head_loss), torch.float32),
    ]
    return dict(zip(names, map(list, zip(*ways, strict=True)), strict=True))


def head_losses_left_to_the_library() -> dict[str, int]:
    """How often trl's own loss was asked, by what was special about the batch."""
    import torch

    from core.training import head_loss

    asked: list[int] = []
    library = head_loss._library_loss

    def counted(*given: Any, **named: Any) -> Any:
        asked.append(1)
        return library(*given, **named)

    head_loss._library_loss = counted
    states, weight = torch.randn(2, 9, 8), torch.randn(50, 8)
    labels = torch.randint(0, 50, (2, 9))
    cases: dict[str, dict[str, Any]] = {
        "soft cap": {"final_logit_softcapping": 30.0},
        "scale": {"logit_scale": 0.5},
        "bias": {"lm_head_bias": torch.randn(50)},
        "no gradient": {},
        "nothing trained": {"labels": torch.full((2, 9), -100)},
        "bfloat16": {"hidden_states": states.bfloat16(), "lm_head_weight": weight.bfloat16()},
        "plain": {},
    }
    found = {}
    for name, special in cases.items():
        asked.clear()
        usual = {"hidden_states": states, "lm_head_weight": weight, "chunk_size": 256, "labels": labels}
        with torch.set_grad_enabled(name != "no gradient"):
            head_loss.head_loss(**(usual | special))
        found[name] = len(asked)
    return found


def adapter_layers(settings: dict[str, Any], bias: bool) -> dict[str, Any]:
    """A layer with an adapter as peft computes it and as we do: largest differences, and how often ours was used."""
    import torch
    from peft import LoraConfig, get_peft_model

    from core.training import adapter_layer

    def computed(short: bool) -> tuple[dict[str, Any], int, int]:
        torch.manual_seed(0)
        base = torch.nn.Sequential(torch.nn.Linear(24, 40, bias=bias))
        model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["0"], **settings))
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter)
        used = _counted(adapter_layer._Adapted)
        installed = adapter_layer.install(model) if short else 0
        x = torch.randn(2, 7, 24, requires_grad=True)
        torch.manual_seed(1)  # of the dropout
        out = model(x)
        (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
        found = {"output": out.detach(), "input": x.grad}
        found |= {name: one.grad for name, one in model.named_parameters() if one.requires_grad}
        times = len(used)
        model.disable_adapter_layers()
        return {**found, "switched off": model(x).detach()}, installed, times

    theirs, _, _ = computed(False)
    ours, installed, used = computed(True)
    differences = {
        name: float((ours[name] - value).abs().max() / value.abs().max()) for name, value in theirs.items()
    }
    return {"installed": installed, "used": used, "differences": differences}


def _random_model(architecture: str) -> Any:
    """A language model of the named kind, small, from seed 0."""
    import torch
    import transformers

    from tests.tiny import small_sizes

    torch.manual_seed(0)
    kind = getattr(transformers, f"{architecture}Config")
    sizes = small_sizes(kind())
    return transformers.AutoModelForCausalLM.from_config(kind(vocab_size=100, pad_token_id=0, **sizes)).eval()


def head_of(architecture: str) -> dict[str, Any]:
    """Loss and gradients of one batch by the model's own loss and with ours at the head; how often ours was used."""
    import torch
    from trl.trainer.sft_trainer import _patch_chunked_ce_lm_head

    from core.training import head_loss

    ids = torch.randint(5, 90, (3, 40), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[0, :30] = -100
    used = _counted(head_loss._HeadLoss)

    def computed(short: bool) -> tuple[float, dict[str, Any]]:
        model = _random_model(architecture)
        if short:
            head_loss.install()
            _patch_chunked_ce_lm_head(model, chunk_size=256)
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        return float(loss.detach()), {name: one.grad for name, one in model.named_parameters()}

    (theirs, of_theirs), (ours, of_ours) = computed(False), computed(True)
    largest = max(float(one.abs().max()) for one in of_theirs.values() if one is not None)
    differences = [
        float((of_ours[name] - one).abs().max()) / largest
        for name, one in of_theirs.items()
        if one is not None
    ]
    return {"theirs": theirs, "ours": ours, "used": len(used), "gradients": max(differences)}


def answers_both_ways(architecture: str, sample: bool) -> dict[str, Any]:
    """Tokens drawn with prompts read once and with prompts read for each answer, and the reason where they are not."""
    import torch

    from core.training import shared_prompts

    model = _random_model(architecture)
    prompts = torch.randint(5, 90, (3, 9))
    prompts[0, :4] = 0
    ids = prompts.repeat_interleave(4, dim=0)
    asked = {"max_new_tokens": 12, "do_sample": sample, "top_k": 0, "eos_token_id": 3, "pad_token_id": 0}

    def drawn() -> Any:
        torch.manual_seed(1)
        return model.generate(input_ids=ids, attention_mask=(ids != 0).long(), **asked)

    before = drawn()
    reason = shared_prompts.install(model)
    return {"same": torch.equal(before, drawn()), "reason": reason}


def copies(rows: list[list[int]]) -> int:
    """How often each prompt of a batch is repeated, as generation sees it."""
    import torch

    from core.training.shared_prompts import copies_of_each

    ids = torch.tensor(rows)
    return copies_of_each(ids, torch.ones_like(ids))
