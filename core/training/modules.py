"""Names of modules inside a model, and refusals that list them."""

from __future__ import annotations

import difflib
from typing import Any

from data.errors import FactoryError, Finding


def linear_module_names(model: Any) -> list[str]:
    """Last name parts of every linear layer of the model, sorted, each once (q_proj, up_proj, ...)."""
    import torch

    return sorted(
        {name.rsplit(".", 1)[-1] for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)}
    )


def check_module_names(model: Any, wanted: str | list[str], field: str) -> None:
    """Refuse names that no module of the model ends with; peft would leave them out silently when others match.

    Raises FactoryError with one finding per unmatched name.
    """
    if isinstance(wanted, str):
        return
    names = [name for name, _ in model.named_modules()]
    unmatched = [want for want in wanted if not any(n == want or n.endswith(f".{want}") for n in names)]
    if not unmatched:
        return
    known = sorted({name.rsplit(".", 1)[-1] for name in names if name})
    linear = linear_module_names(model)
    findings = []
    for want in unmatched:
        near = difflib.get_close_matches(want, known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        findings.append(
            Finding(
                "module_not_found",
                f"{field} names {want!r}, which this model does not have{hint}; its linear modules are "
                f"{', '.join(linear)}.",
                field=field,
                value=want,
                params={"linear": linear},
            )
        )
    raise FactoryError(findings)


def transformer_layers(model: Any) -> list[Any]:
    """The model's repeated blocks, first to last: its longest list of modules of one kind."""
    import torch

    lists = [part for part in model.modules() if isinstance(part, torch.nn.ModuleList)]
    return list(max(lists, key=len, default=[]))
