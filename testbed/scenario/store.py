"""Where scenarios come from and go to: the library, files, text, JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from testbed.errors import UsageError
from testbed.scenario.check import check_rules, checked
from testbed.scenario.document import MAX_TEXT_BYTES, read, write
from testbed.scenario.fields import fields_of
from testbed.scenario.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from testbed.scenario.model import Scenario

__all__ = ["Entry", "apply_settings", "from_json", "library", "load", "load_text", "save"]

LIBRARY = Path(__file__).parent / "library"


class Entry(NamedTuple):
    """A scenario of the library."""

    name: str
    about: str


def library() -> list[Entry]:
    """Return the scenarios of the library, by name."""
    return [Entry(name, load(name).about) for name in _names()]


def _names() -> list[str]:
    return sorted(path.stem for path in LIBRARY.glob("*.yaml"))


def load(source: str | Path, rules: Collection[str] | None = None) -> Scenario:
    """Return the scenario of that name in the library, or of that file.

    :param source: a name, or a path: something with a slash in it or ending in .yaml or .yml.
    :param rules: ids of all rules, if ``must_exercise`` is to be checked against them.
    :raise UsageError: unknown name, missing or unreadable file, or a wrong field (with file and line).
    """
    text = str(source)
    if "/" not in text and not text.endswith((".yaml", ".yml")):
        if text not in _names():
            names = ", ".join(_names())
            message = f"expected the name of a scenario, or a file ending in .yaml, seen {text!r}"
            raise UsageError(message, f"scenarios are {names}")
        return load(LIBRARY / f"{text}.yaml", rules)
    return load_text(_read_file(Path(text)), text, rules)


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEXT_BYTES + 1)
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        message = f"{path}:{line}: expected YAML in UTF-8, seen other bytes"
        raise UsageError(message, "save it as UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path}: expected a scenario file, seen: {reason}", "check the path") from None
    if len(data) > MAX_TEXT_BYTES:
        raise UsageError(f"{path}: expected at most {MAX_TEXT_BYTES} bytes of YAML, seen more", "use repeat")
    return text


def load_text(text: str, origin: str, rules: Collection[str] | None = None) -> Scenario:
    """Return the scenario that YAML text describes.

    :param origin: what messages call the text, usually its file; paths of captures count from its directory.
    :raise UsageError: as :func:`load`.
    """
    document = read(text, origin)
    scenario = checked(document.data, document.error, Path(origin).parent)
    if rules is not None:
        check_rules(scenario, rules, document.error)
    return scenario


def save(scenario: Scenario) -> str:
    """Return YAML, defaults left out, that :func:`load_text` turns into an equal scenario."""
    return write(_without_defaults(scenario))


def _without_defaults(struct: msgspec.Struct) -> dict[str, Any]:
    """Return a struct as plain data without the fields that have their default, nested structs likewise."""
    tag = struct.__struct_config__.tag
    data: dict[str, Any] = {"step": tag} if tag else {}
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if value == field.default:
            continue
        if isinstance(value, msgspec.Struct):
            data[field.name] = _without_defaults(value)
        elif isinstance(value, tuple):
            data[field.name] = [_without_defaults(v) if isinstance(v, msgspec.Struct) else v for v in value]
        else:
            data[field.name] = value
    return data


def from_json(data: bytes | str, origin: str = "scenario") -> Scenario:
    """Return the scenario that :func:`testbed.scenario.model.canonical_json` wrote.

    :param origin: what messages call the text.
    :raise UsageError: it is not JSON, or a field is wrong.
    """
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{origin}: expected a scenario as JSON, seen: {error}"
        raise UsageError(message, "take the scenario out of a result file") from None
    return checked(plain, lambda fault: fault.error(origin))


def apply_settings(scenario: Scenario, overrides: Mapping[str, str]) -> Scenario:
    """Return the scenario with some settings replaced: what ``--set rx_ring=128`` asks for.

    :param overrides: values by name, as text.
    :raise UsageError: an unknown name, a bad value, or one that does not go with the rest of the scenario.
    """
    known = fields_of(Settings)
    settings: dict[str, object] = msgspec.to_builtins(scenario.settings)
    for name, text in overrides.items():
        if name not in known:
            listed = ", ".join(known)
            message = f"--set {name}={text}: expected the name of a setting, seen {name!r}"
            raise UsageError(message, f"settings are {listed}")
        settings[name] = _value(text)
    data = {**msgspec.to_builtins(scenario), "settings": settings}
    if overrides.keys() & {"mode", "xdp_mode"}:
        data["otherwise"] = None  # who asks for a mode gets that one or none
    origin = " ".join(f"--set {name}={text}" for name, text in overrides.items()) or scenario.name
    return checked(data, lambda fault: fault.error(origin))


def _value(text: str) -> object:
    """Return text as the scalar it would be in a file."""
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if text.isascii() and text.lstrip("-").isdecimal() and len(text) < 20 else text
