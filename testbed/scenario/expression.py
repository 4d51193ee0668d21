"""Frames as scapy expressions: ``Ether()/IP()/UDP(dport=9)/Raw(b"x" * 20)``, and nothing else of Python.

Layers, their fields, literals, ``/`` between layers, ``*`` and ``+`` of bytes and text are all there is. What scapy
would fill in from the host (addresses, routes) is the guest's wire's instead, names are not looked up, and an
expression that gives other bytes each time is refused, so that equal text gives equal frames everywhere.
"""

from __future__ import annotations

import ast
import ipaddress
import re
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scapy.packet import Packet

__all__ = ["GUEST_IP", "GUEST_MAC", "HOST_IP", "HOST_MAC", "ExpressionError", "frames_of"]

MAX_TEXT = 2000
MAX_LITERAL = 9000  # bytes that * may make
HOST_MAC, GUEST_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
HOST_IP, GUEST_IP = "192.0.2.1", "192.0.2.2"
_HOME = {
    "Ether": {"dst": GUEST_MAC, "src": HOST_MAC},
    "Dot3": {"dst": GUEST_MAC, "src": HOST_MAC},
    "ARP": {"hwsrc": HOST_MAC, "psrc": HOST_IP, "pdst": GUEST_IP},
    "IP": {"src": HOST_IP, "dst": GUEST_IP},
    "IPv6": {"src": "2001:db8::1", "dst": "2001:db8::2"},
}
_FIRST = ("Ether", "Dot3")
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


class ExpressionError(ValueError):
    """What is wrong with an expression: ``expected`` and ``seen``, as messages have them."""

    def __init__(self, expected: str, seen: str) -> None:
        self.expected, self.seen = expected, " ".join(seen.split())[:120]
        super().__init__(f"expected {expected}, seen {self.seen}")


def frames_of(text: str, most: int) -> list[bytes]:
    """Return the frames that an expression describes; ranges such as ``UDP(dport=(1, 4))`` make several.

    :param most: how many there may be.
    :raise ExpressionError: it is not one of ours, or does not give frames.
    """
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"at most {MAX_TEXT} characters", f"{len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ExpressionError('a scapy expression such as Ether()/IP()/UDP()/Raw(b"x")', message) from None
    first, again = (_built(_value(tree.body), most) for _ in range(2))
    if first != again:
        raise ExpressionError("the same bytes each time", "a field that scapy fills in from clock or chance")
    return first


def _built(packet: Any, most: int) -> list[bytes]:
    from scapy.packet import Packet  # noqa: PLC0415 - scapy takes 0.3 s to import

    if not isinstance(packet, Packet) or type(packet).__name__ not in _FIRST:
        seen = type(packet).__name__
        raise ExpressionError("Ether() or Dot3() as the first layer", seen)
    layer = packet
    while isinstance(layer, Packet):
        for name, value in _HOME.get(type(layer).__name__, {}).items():
            layer.fields.setdefault(name, value)
        layer = layer.payload
        if not layer:
            break
    frames: list[bytes] = _by_scapy(lambda: [bytes(each) for each in islice(packet, most + 1)])
    if len(frames) > most:
        raise ExpressionError(f"at most {most} frames", "more")
    return frames


def _by_scapy(deed: Any) -> Any:
    """Do something of scapy's, which raises what it likes."""
    try:
        return deed()
    except Exception as error:  # noqa: BLE001 - see above
        raise ExpressionError("what scapy can build", f"{type(error).__name__}: {error}") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() | float() | str() | bytes() | None as value):
            return value
        case ast.List(elts=parts):
            return [_value(part) for part in parts]
        case ast.Tuple(elts=parts):
            return tuple(_value(part) for part in parts)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.BinOp(left=left, op=operator, right=right):
            return _joined(_value(left), operator, _value(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
            return _layer(name, arguments, keywords)
    raise ExpressionError("layers of scapy, literals, / and *", ast.unparse(node))


def _joined(left: Any, operator: ast.operator, right: Any) -> Any:
    from scapy.packet import Packet  # noqa: PLC0415

    match operator, left, right:
        case ast.Div(), Packet(), Packet() | bytes() | str():
            return _by_scapy(lambda: left / right)
        case (ast.Mult(), str() | bytes(), int()) if 0 <= len(left) * right <= MAX_LITERAL:
            return left * right
        case (ast.Add(), bytes(), bytes()) | (ast.Add(), str(), str()):
            return left + right
    seen = f"{type(left).__name__} {type(operator).__name__.lower()} {type(right).__name__}"
    raise ExpressionError(f"layer/layer, or at most {MAX_LITERAL} bytes by * or +", seen)


def _layer(name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Packet:
    layer = _known(name)
    fields = {field.name: field for field in layer.fields_desc}
    if len(arguments) > 1:
        raise ExpressionError(f"{name}(field=value, ...) or {name}(bytes)", f"{len(arguments)} values")
    given = [_value(argument) for argument in arguments]
    if given and not isinstance(given[0], (bytes, str)):
        raise ExpressionError(f"bytes as the value of {name}", type(given[0]).__name__)
    values: dict[str, Any] = {}
    for keyword in keywords:
        if keyword.arg is None or keyword.arg not in fields:
            known = ", ".join(fields) or "none"
            raise ExpressionError(f"a field of {name} out of {known}", keyword.arg or "**")
        values[keyword.arg] = _value(keyword.value)
        _check_addresses(fields[keyword.arg], values[keyword.arg])
    return _by_scapy(lambda: layer(*given, **values))


@cache
def _known(name: str) -> Any:
    """Return the layer of that name: of the common ones at once, of all that scapy has after a second."""
    from scapy.layers import inet, l2  # noqa: PLC0415
    from scapy.packet import Packet  # noqa: PLC0415

    for room in (l2, inet):
        found = getattr(room, name, None)
        if isinstance(found, type) and issubclass(found, Packet):
            return found
    import scapy.layers.all  # noqa: F401, PLC0415
    from scapy.config import conf  # noqa: PLC0415

    found = next((layer for layer in conf.layers if layer.__name__ == name), None)
    if found is None:
        raise ExpressionError("a layer of scapy", repr(name))
    return found


def _check_addresses(field: Any, value: Any) -> None:
    """Check the addresses for a field: scapy looks up what looks like a name, and takes a word for a MAC."""
    from scapy.fields import IPField, MACField, MultipleTypeField  # noqa: PLC0415
    from scapy.layers.inet6 import IP6Field  # noqa: PLC0415

    if isinstance(value, (list, tuple)):
        for each in value:
            _check_addresses(field, each)
        return
    if isinstance(field, MultipleTypeField):  # of ARP: which of them it is, other fields decide
        kinds = [type(each[0]) for each in field.flds if isinstance(each[0], (IPField, MACField))]
    else:
        kinds = [type(getattr(field, "fld", field))]
    if any(issubclass(kind, (IPField, IP6Field)) for kind in kinds):
        try:
            ipaddress.ip_network(value if isinstance(value, str) else "::", strict=False)
        except ValueError:
            raise ExpressionError(
                "an IP address or network, as names are not looked up", repr(value)
            ) from None
    elif any(issubclass(kind, MACField) for kind in kinds) and not _MAC.fullmatch(str(value)):
        raise ExpressionError("a MAC address", repr(value))
