"""Fields that hold one kind of many: what pydantic's own union on `name` says, but only the named kind is imported."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any, Union

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from core.engines import ENGINES
from core.export import TARGETS
from core.job.base import OneOf
from core.job.register import Register
from core.job.spec import AnyStage
from core.launchers import LAUNCHERS
from core.methods import METHODS
from core.rewards import REWARDS
from core.stages import STAGES

REGISTERS = {
    "stages": STAGES,
    "methods": METHODS,
    "rewards": REWARDS,
    "engines": ENGINES,
    "launchers": LAUNCHERS,
    "export": TARGETS,
}
WRONG: list[Any] = [
    {"name": "sft", "max_length": 3},
    {"name": "sft", "max_length": "long", "packing": 1, "nonsense": True},
    {"name": "sfd"},
    {"name": 5},
    {"max_length": 8},
    {},
    [],
    7,
    None,
]


@pytest.mark.parametrize("kinds", REGISTERS.values(), ids=REGISTERS)
def test_every_kind_is_called_like_its_file(kinds: Register):
    assert tuple(module.Spec.model_fields["name"].default for module in kinds) == kinds.names


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_kind_is_refused_as_pydantics_union_would(value):
    union: Any = Annotated[Union[tuple(module.Spec for module in STAGES)], Field(discriminator="name")]  # noqa: UP007
    expected = [
        (one["type"], tuple(part for part in one["loc"] if part != "sft"), one["msg"])
        for one in _errors(union, value)
    ]
    assert [(one["type"], one["loc"], one["msg"]) for one in _errors(AnyStage, value)] == expected != []


def _errors(kind: Any, value: Any) -> Any:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(kind).validate_python(value)
    return refused.value.errors(include_url=False)


@pytest.mark.parametrize("kinds", REGISTERS.values(), ids=REGISTERS)
def test_a_bare_name_a_mapping_and_the_settings_themselves_are_the_same(kinds: Register):
    adapter = TypeAdapter(Annotated[Any, OneOf(kinds)])
    for module in kinds:
        name = module.Spec.model_fields["name"].default
        required = [key for key, field in module.Spec.model_fields.items() if field.is_required()]
        needed = {key: "http://x" if key == "url" else "x" for key in required}
        made = adapter.validate_python({"name": name, **needed})
        assert type(made) is module.Spec
        assert adapter.validate_python(made) is made
        assert adapter.validate_json(made.model_dump_json()) == made
        if not needed:
            assert adapter.validate_python(name) == made


def test_reading_a_job_imports_its_own_stage_and_method_only():
    program = (
        "import sys\n"
        "from core.job.spec import JobSpec\n"
        "JobSpec.model_validate({'model': 'm', 'data': 'd.jsonl', 'stage': 'dpo', 'method': 'full'})\n"
        "print([name for name in sys.modules if name.startswith(('core.stages.', 'core.methods.'))])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == str(
        ["core.methods.base", "core.stages.base", "core.stages.dpo", "core.methods.full"]
    )


def test_a_command_imports_its_own_words_and_no_others():
    program = (
        "import sys\n"
        "from core.cli import main\n"
        "assert main(['--home', 'nowhere', 'resume', '--help']) == 0\n"
        "print([name for name in sys.modules if name.startswith('core.cli.')], file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stderr.strip() == str(["core.cli.show", "core.cli.train"])
