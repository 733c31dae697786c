"""Rewrite the addresses of brokers in any message, whatever its API and version.

`wire.walk` changes the fields of one kind. An address is two fields, and only the broker's id
next to them shows whose it is:

    rewrite_endpoints(response, lambda node, address: proxies.get(node, address))

An endpoint is a structure with one field each of the kinds `BrokerId`, `Host` and `Port`. Lists of
listeners, which controllers send each other, have no id next to each address and stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple, TypeVar

from rookery.model.address import Address
from rookery.wire.message import BrokerId, Host, Message, Port, kind_of
from rookery.wire.table import shape_of, structures

M = TypeVar("M", bound=Message)


class EndpointFields(NamedTuple):
    """The fields of a structure that is an endpoint."""

    node: str
    host: str
    port: str


def rewrite_endpoints(message: M, change: Callable[[int, Address], Address]) -> M:
    """Replace the address of every broker, in place; return the message.

    `change` gets a broker's id and its address. The id is -1 where an answer names no broker.
    """
    for owner, fields in _endpoints(message):
        old = Address(getattr(owner, fields.host), getattr(owner, fields.port))
        host, port = change(getattr(owner, fields.node), old)
        setattr(owner, fields.host, host)
        setattr(owner, fields.port, port)
    return message


def has_endpoints(cls: type[Message]) -> bool:
    """Whether a message of this class can hold the address of a broker."""
    return _has_endpoints(cls)


@cache
def _has_endpoints(cls: type[Message]) -> bool:
    return any(endpoint_fields(structure) is not None for structure in structures(cls))


@cache
def endpoint_fields(cls: type[Message]) -> EndpointFields | None:
    """Return the fields of a structure that is an endpoint itself; None if it is not."""
    names: list[str] = []
    for kind in map(kind_of, (BrokerId, Host, Port)):
        marked = [
            name for name, entry in cls.__fields__.items() if shape_of(cls, entry).mark == kind
        ]
        if len(marked) != 1:
            return None
        names += marked
    return EndpointFields(*names)


def _endpoints(message: Message) -> Iterator[tuple[Message, EndpointFields]]:
    """Yield the endpoints in a message, without a look at fields that cannot lead to one."""
    fields = endpoint_fields(type(message))
    if fields is not None:
        yield message, fields
    for name, is_array in _ways(type(message)):
        value = getattr(message, name)
        for inner in (value or ()) if is_array else (value,):
            if inner is not None:
                yield from _endpoints(inner)


@cache
def _ways(cls: type[Message]) -> tuple[tuple[str, bool], ...]:
    """Return the fields whose structures lead to endpoints, and whether each is a list."""
    shapes = {name: shape_of(cls, entry) for name, entry in cls.__fields__.items()}
    return tuple(
        (name, shape.is_array)
        for name, shape in shapes.items()
        if shape.message is not None and has_endpoints(shape.message)
    )
