"""The YAML that users write: read with the place of every value, written so that it reads back equal.

Short forms are expanded while reading: ``- tx_kick``, ``- rx_drain: all`` and ``- tx: {count: 32}`` become
mappings with the word under ``step``. Aliases, tags and merge keys are refused: they make a small file large.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from testbed.errors import UsageError
from testbed.scenario.fields import fields_of
from testbed.scenario.steps import STEPS

if TYPE_CHECKING:
    from testbed.scenario.fault import Fault

__all__ = ["MAX_TEXT_BYTES", "Document", "read", "write"]

MAX_TEXT_BYTES = 1 << 20
MAX_NESTING = 100  # lists and mappings inside each other
DEVICE = "device"  # the step whose fields its NIC declares
TAG = "tag:yaml.org,2002:"
WIDE = 1 << 20  # columns; a line is never folded
# YAML 1.2's core schema, by which `off` is a word and 017 is seventeen; the library resolves by YAML 1.1.
PLAIN = {
    "null": re.compile(r"(?:~|null|Null|NULL|)"),
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)"),
    "int": re.compile(r"(?:[-+]?[0-9][0-9_]*|0o[0-7_]+|0x[0-9a-fA-F_]+|0b[01_]+)"),
    "float": re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"),
}


class Place(NamedTuple):
    """Where a value stands."""

    line: int
    label: str  # as the user wrote it: steps[3].inject.count


class Document(NamedTuple):
    """A file as plain data, and the places of its values by path ($.steps[3].count)."""

    origin: str
    data: object
    places: dict[str, Place]

    def error(self, fault: Fault) -> UsageError:
        """Return the error for a fault: file, line, field, expected, seen, remedy."""
        path = fault.path
        while path not in self.places and path != "$":
            path = path[: max(path.rfind("."), path.rfind("["))] or "$"
        line, label = self.places.get(path, Place(1, ""))
        rest = fault.path[len(path) :] if label else fault.path[2:]
        field = f"{label}{rest}".lstrip(".")
        named = f"{field}: " if field else ""
        return UsageError(
            f"{self.origin}:{line}: {named}expected {fault.expected}, seen {fault.seen}", fault.remedy
        )


def read(text: str, origin: str) -> Document:
    """Return the document.

    :param origin: the file's name, for messages.
    :raise UsageError: the text is not YAML, or not made of mappings, lists, numbers, words and steps.
    """
    reader = _Reader(origin)
    try:
        if line := _too_deep(text):
            raise reader.wrong(line, "", "YAML", "lists or mappings nested too deep")
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        seen = " ".join(str(error.problem or error.context).split())
        raise reader.wrong(mark.line + 1 if mark else 1, "", "YAML", seen) from None
    except (yaml.YAMLError, ValueError) as error:
        raise reader.wrong(1, "", "YAML", " ".join(str(error).split())[:120]) from None
    if node is None:
        raise reader.wrong(1, "", "a mapping with name and steps", "an empty file")
    return Document(origin, reader.value(node, "$", ""), reader.places)


def _too_deep(text: str) -> int:
    """Return the line at which the text nests deeper than anything sensible, or 0.

    Asked before a tree is made: that takes a time that grows with the square of the depth.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_NESTING:
                return _line(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return 0


def _line(part: Node | yaml.Event) -> int:
    if part.start_mark is None:
        raise TypeError("the reader leaves a mark on all that it reads")
    return part.start_mark.line + 1


class _Reader:
    """Makes plain data of YAML nodes and notes where each value stood."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.places: dict[str, Place] = {}
        self.seen: set[int] = set()

    def wrong(self, line: int, label: str, expected: str, seen: str, remedy: str = "") -> UsageError:
        named = f"{label}: " if label else ""
        remedy = remedy or "see `testbed list scenarios` for files to start from"
        return UsageError(f"{self.origin}:{line}: {named}expected {expected}, seen {seen}", remedy)

    def value(self, node: Node, path: str, label: str) -> object:
        line = _line(node)
        self.places[path] = Place(line, label)
        if id(node) in self.seen:
            raise self.wrong(line, label, "a value", "an alias", "write it out, or use repeat")
        self.seen.add(id(node))
        if isinstance(node, ScalarNode):
            return self.scalar(node, line, label)
        if isinstance(node, SequenceNode):
            return [self.value(item, f"{path}[{i}]", f"{label}[{i}]") for i, item in enumerate(node.value)]
        if isinstance(node, MappingNode):
            return self.mapping(node, path, label)
        raise self.wrong(line, label, "a value", "something else")

    def mapping(self, node: MappingNode, path: str, label: str) -> dict[str, object]:
        data: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = _line(key_node)
            if not isinstance(key_node, ScalarNode) or id(key_node) in self.seen:
                raise self.wrong(line, label, "a word before the colon", "something else")
            key = str(key_node.value)
            inner = f"{label}.{key}".lstrip(".")
            if key in data:
                raise self.wrong(line, inner, "each field once", f"{key!r} again", "remove one of the two")
            if key == "steps" and isinstance(value_node, SequenceNode):
                self.places[f"{path}.steps"] = Place(line, inner)
                items = enumerate(value_node.value)
                data[key] = [self.step(item, f"{path}.steps[{i}]", f"{inner}[{i}]") for i, item in items]
            else:
                data[key] = self.value(value_node, f"{path}.{key}", inner)
        return data

    def scalar(self, node: ScalarNode, line: int, label: str) -> object:
        text = str(node.value)
        if node.style in {"'", '"', "|", ">"}:
            return text
        try:
            match _kind(text):
                case "null":
                    return None
                case "bool":
                    return text.lower() == "true"
                case "int":
                    return _integer(text)
                case "float":
                    return float(text.replace("_", ""))
        except ValueError:
            raise self.wrong(line, label, "a number", repr(text[:40]), "write a decimal number") from None
        return text

    def step(self, node: Node, path: str, label: str) -> object:
        line = _line(node)
        words = "steps are " + ", ".join(STEPS)
        if isinstance(node, ScalarNode):
            word, argument = str(node.value), None
        elif (
            isinstance(node, MappingNode)
            and len(node.value) == 1
            and isinstance(node.value[0][0], ScalarNode)
        ):
            word, argument = str(node.value[0][0].value), node.value[0][1]
        else:
            seen = f"a mapping of {len(node.value)}" if isinstance(node, MappingNode) else "a list"
            raise self.wrong(line, label, "one step, such as rx_drain: all", seen, words)
        if word not in STEPS:
            raise self.wrong(line, label, "a step", repr(word[:40]), words)
        label = f"{label}.{word}"
        self.places[path] = Place(line, label)
        return {"step": word, **self.arguments(argument, word, path, label)}

    def arguments(self, node: Node | None, word: str, path: str, label: str) -> dict[str, object]:
        fields, bare = fields_of(STEPS[word]), STEPS[word].bare
        if node is None:
            return {}
        line = _line(node)
        if isinstance(node, MappingNode):
            data = self.mapping(node, path, label)
            if "step" in data:
                known = ", ".join(fields) or "none"
                raise self.wrong(line, label, f"a field out of {known}", "'step'", "remove it")
            return _with_arguments(data) if word == DEVICE else data
        given = self.value(node, f"{path}.{bare}", label)
        if given is None:
            return {}
        if not bare:
            expected = f"a mapping of {', '.join(fields)}" if fields else "nothing after the word"
            raise self.wrong(
                line, label, expected, repr(given)[:40], f"see the other {word} steps of the library"
            )
        return {bare: given}


def _with_arguments(data: dict[str, object]) -> dict[str, object]:
    """Return the fields of a ``device`` step: the command, and all that stands beside it as its arguments."""
    arguments = {name: value for name, value in data.items() if name != "command"}
    return {name: data[name] for name in data if name == "command"} | {"arguments": arguments}


def _kind(text: str) -> str:
    """Return what an unquoted scalar is besides text, or nothing."""
    return next((kind for kind, form in PLAIN.items() if form.fullmatch(text)), "")


def _integer(text: str) -> int:
    text = text.replace("_", "").lower()
    return int(text, 0) if text.lstrip("+-").startswith(("0x", "0o", "0b")) else int(text)


def write(data: dict[str, Any]) -> str:
    """Return plain data of a scenario (msgspec.to_builtins, defaults removed) as YAML in the short forms."""
    flow = {"must_exercise", "otherwise"}
    parts = [(name, _node(value, flow=name in flow)) for name, value in data.items() if name != "steps"]
    parts.append(("steps", _steps(data["steps"])))
    text: str = yaml.serialize(_mapping(parts), Dumper=yaml.CSafeDumper, width=WIDE, allow_unicode=True)
    return text


def _node(value: object, *, flow: bool = False) -> Node:
    if isinstance(value, dict):
        return _mapping([(name, _node(inner)) for name, inner in value.items()], flow=flow)
    if isinstance(value, list):
        return SequenceNode(f"{TAG}seq", [_node(item) for item in value], flow_style=flow)
    if isinstance(value, str):
        return ScalarNode(f"{TAG}str", value, style="'" if _kind(value) else None)
    kind = {bool: "bool", int: "int", float: "float"}.get(type(value), "null")
    return ScalarNode(f"{TAG}{kind}", json.dumps(value))


def _mapping(parts: list[tuple[str, Node]], *, flow: bool = False) -> Node:
    return MappingNode(f"{TAG}map", [(_node(name), node) for name, node in parts], flow_style=flow)


def _steps(steps: list[dict[str, Any]]) -> Node:
    return SequenceNode(f"{TAG}seq", [_short(step) for step in steps], flow_style=False)


def _short(step: dict[str, Any]) -> Node:
    """Return the shortest YAML for a step: a word, a word with a value, or a word with a mapping."""
    fields = {key: value for key, value in step.items() if key != "step" and value is not None}
    word = step["step"]
    if not fields:
        return _node(word)
    if word == "repeat":
        inner = [(key, _steps(value) if key == "steps" else _node(value)) for key, value in fields.items()]
        return _mapping([(word, _mapping(inner))])
    if word == DEVICE:
        fields |= fields.pop("arguments", {})
    if list(fields) == [STEPS[word].bare]:
        return _mapping([(word, _node(next(iter(fields.values()))))])
    return _mapping([(word, _node(fields, flow=True))])
