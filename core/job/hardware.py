"""Where a job runs: how many processes, how they share the work, in which precision. Pure words, no machine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from core.job.base import Spec, unit

StrategyName = Literal["none", "ddp", "fsdp2", "deepspeed-1", "deepspeed-2", "deepspeed-3"]
"""none: one process. ddp: every process has the whole model. The others share out what the ZeRO paper (arXiv
1910.02054) numbers: 1 optimizer states, 2 and gradients, 3 and weights; fsdp2 is torch's own way to share out all."""

Slot = Annotated[int, Field(ge=0, le=65_535)]
Count = Annotated[int, Field(ge=1, le=1024)]


class HardwareSpec(Spec):
    """Where it runs, on how many devices, and in which precision."""

    devices: Count | list[Slot] | None = None
    """How many devices (2: any two; on a CPU two processes), or which, by number ([0, 2]); empty takes one."""
    nodes: int = Field(1, ge=1, le=1024, json_schema_extra=unit("machines"))
    """Machines that train together, each with so many devices; more than one need a launcher that reaches them."""
    strategy: StrategyName | None = None
    """How several processes share the work. Empty: none for one process, ddp (each the whole model) for several."""
    offload: bool = False
    """Keep optimizer states (with deepspeed-3 the weights too) in the machine's memory: less on the GPU, slower."""
    deepspeed_config: str | None = Field(None, min_length=1, max_length=4096)
    """A DeepSpeed JSON of your own instead of the one made from the job; what contradicts the job is refused."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Arithmetic: auto is bf16 where the GPU has it, else fp32; never bf16 on a CPU (0.3x the speed)."""

    @property
    def per_node(self) -> int:
        """Processes on each machine, one for each device."""
        if isinstance(self.devices, list):
            return max(1, len(set(self.devices)))
        return self.devices or 1

    @property
    def processes(self) -> int:
        """Processes of the whole job."""
        return self.per_node * self.nodes

    @property
    def sharing(self) -> StrategyName:
        """The strategy, with what an empty one means."""
        return self.strategy or ("ddp" if self.processes > 1 else "none")

    @property
    def zero(self) -> int:
        """The stage of DeepSpeed's ZeRO: 1, 2 or 3; 0 without DeepSpeed."""
        name = self.sharing
        return int(name.removeprefix("deepspeed-")) if name.startswith("deepspeed-") else 0
