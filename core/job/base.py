"""The base of everything that is asked for: strict, frozen, documented pydantic models. Knows no field of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Revision = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$",
        json_schema_extra={"shape": "letters, digits, dots, dashes, underscores and slashes"},
    ),
]
"""A branch, tag or commit on the hub."""


class Spec(BaseModel):
    """A part of a job. Unknown keys, NaN, Infinity, and True where a number is meant are refused."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,
    )
    # The text under a field is its help. core.job.schema reads it when it is asked for; pydantic's own
    # use_attribute_docstrings would parse every source file at import, a fifth of what importing a job costs.


class Named(Spec):
    """A part of a job that is one of several kinds, told apart by `name`. A bare string is short for {name: ...}."""

    name: str


def unit(text: str) -> dict[str, Any]:
    """The unit of a field, for forms and docs: `Field(json_schema_extra=unit("steps"))`."""
    return {"unit": text}


def _long_form(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def one_of(kinds: Sequence[type[Named]]) -> Any:
    """The type of a field that holds one of `kinds`: a union on `name`, also accepting the bare name.

    Returns an annotated type for pydantic; built from a tuple so that a new kind is one line.
    """
    names = tuple(kind.model_fields["name"].default for kind in kinds)
    union: Any = Union[tuple(kinds)]  # noqa: UP007 - built from a tuple at run time
    chosen = Annotated[union, Field(discriminator="name")] if len(kinds) > 1 else union
    return Annotated[chosen, BeforeValidator(_long_form, json_schema_input_type=Union[Literal[names], union])]  # noqa: UP007
