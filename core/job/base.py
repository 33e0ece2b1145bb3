"""The base of everything that is asked for: strict, frozen, documented pydantic models. Knows no field of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from core.job.register import Register

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue


def of_shape(pattern: str, words: str, **bounds: Any) -> Any:
    """The text of a field, whole, and what it looks like in words: `Annotated[str, of_shape(r"^[a-z]+$", "letters")]`.

    Refusals, forms and docs say the words; nobody is shown the pattern.
    """
    return Field(pattern=pattern, json_schema_extra={"shape": words}, **bounds)


Revision = Annotated[
    str,
    of_shape(
        r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$", "letters, digits, dots, dashes, underscores and slashes"
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


class OneOf:
    """The type of a field that holds one kind of a register, told apart by `name`; also accepts the bare name.

    What pydantic's own union on `name` does, with the same errors and the same JSON schema, except that only the kind
    that a job names is imported and built: `Annotated[StageSpec, OneOf(STAGES)]`.
    """

    def __init__(self, kinds: Register) -> None:
        self.kinds = kinds

    def choose(self, value: Any) -> Named:
        """The checked settings of the kind that `value` names. Raises pydantic's errors, located inside `value`."""
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, (Mapping, Named)):
            raise PydanticKnownError("model_attributes_type")
        name = value.name if isinstance(value, Named) else value.get("name")
        if name is None:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": "'name'"})
        if name not in self.kinds.names:
            known = ", ".join(map(repr, self.kinds.names))
            context = {"discriminator": "'name'", "tag": str(name), "expected_tags": known}
            raise PydanticKnownError("union_tag_invalid", context)
        chosen: Named = self.kinds.named(name).Spec.model_validate(value)
        return chosen

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.choose)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        every: Any = Union[Literal[self.kinds.names], *(module.Spec for module in self.kinds)]
        return handler(TypeAdapter(every).core_schema)
