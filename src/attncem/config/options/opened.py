"""Opened: a union of options that plugins extend."""

from __future__ import annotations

from typing import Annotated, Any, Union

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from attncem.base.plugins import additions, version


class Opened:
    """Marks a union of options classes, distinguished by ``name``, that plugins of these kinds extend.

    Without plugins the union validates as it is written.
    """

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds
        self._union: Any = None
        self._made: tuple[tuple[int, ...], TypeAdapter[Any]] | None = None

    def added(self) -> list[Any]:
        """The options classes that plugins have added."""
        return [one.options for one in additions(*self.kinds)]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The union's schema, or with plugins that of the extended union; a value is serialised as its own class."""
        self._union = source
        return core_schema.no_info_wrap_validator_function(
            self._validated, handler(source), serialization=core_schema.simple_ser_schema("any")
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The JSON schema, with the options of plugins."""
        return handler(self._extended().core_schema if self.added() else schema["schema"])

    def _validated(self, value: Any, validate: core_schema.ValidatorFunctionWrapHandler) -> Any:
        return self._extended().validate_python(value) if self.added() else validate(value)

    def _extended(self) -> TypeAdapter[Any]:
        """The union with the options of plugins, made again after each change."""
        if self._made is None or self._made[0] != version():
            every: Any = Union[self._union, *self.added()]
            made: Any = Annotated[every, Field(discriminator="name")]
            self._made = version(), TypeAdapter(made)
        return self._made[1]
