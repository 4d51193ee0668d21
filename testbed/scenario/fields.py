"""What the declarations say about a field: its type, range, default and meaning, as text for people."""

from __future__ import annotations

import functools
import json
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

__all__ = ["Field", "fields_of"]


class Field(NamedTuple):
    """One field of a struct; all members are text except ``extra``."""

    name: str
    type: str  # integer, boolean, choice, text, list or mapping
    range: str  # "64 to 4096, a multiple of 8"; "a, b or c"; may be empty
    default: str  # as YAML writes it; empty when the field must be given
    about: str
    extra: dict[str, Any]  # what the range cannot say to msgspec: power_of_two, multiple_of

    @property
    def expected(self) -> str:
        """Return what a value must be, for a message: ``an integer, 64 to 4096``."""
        if self.type in {"boolean", "choice"}:
            return self.range
        article = "an" if self.type[0] in "aeiou" else "a"
        named = self.type if self.type == "text" else f"{article} {self.type}"
        return f"{named}, {self.range}" if self.range else named


@functools.cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, Field]:
    """Return the fields of a struct by name, in their order."""
    info = inspect.type_info(struct)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"expected a struct, seen {struct!r}")
    return {field.encode_name: _field(field) for field in info.fields}


def _field(field: inspect.Field) -> Field:
    type_, range_, about, extra = _read(field.type)
    if extra.get("power_of_two"):
        range_ += ", a power of two"
    if "multiple_of" in extra:
        range_ += f", a multiple of {extra['multiple_of']}"
    default = "" if field.default is msgspec.NODEFAULT or field.default is None else _yaml(field.default)
    return Field(field.encode_name, type_, range_, default, about, extra)


def _yaml(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(msgspec.to_builtins(value))


def _read(type_: inspect.Type) -> tuple[str, str, str, dict[str, Any]]:
    """Return type, range, meaning and extra of a type as msgspec sees it."""
    if isinstance(type_, inspect.Metadata):
        name, range_, about, extra = _read(type_.type)
        about = (type_.extra_json_schema or {}).get("description", about)
        return name, range_, about, {**extra, **(type_.extra or {})}
    if isinstance(type_, inspect.UnionType):
        parts = [_read(part) for part in type_.types if not isinstance(part, inspect.NoneType)]
        about = next((part[2] for part in parts if part[2]), "")
        return parts[0][0], ", or ".join(part[1] for part in parts), about, parts[0][3]
    return *_name_and_range(type_), "", {}


def _name_and_range(type_: inspect.Type) -> tuple[str, str]:
    match type_:
        case inspect.IntType():
            return "integer", f"{type_.ge} to {type_.le}"
        case inspect.BoolType():
            return "boolean", "true or false"
        case inspect.LiteralType():
            return "choice", _either([str(value) for value in type_.values])
        case inspect.StrType():
            limit = f"up to {type_.max_length} characters"
            return "text", f"matching {type_.pattern}" if type_.pattern else limit
        case inspect.VarTupleType():
            return "list", "not empty" if type_.min_length else ""
        case _:
            return "mapping", ""


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
