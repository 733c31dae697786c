"""The requests of a virtual cluster that are relayed without a Python object for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rookery import native
from rookery.proxy.direct.acksform import AcksForm
from rookery.proxy.direct.skipprogram import skip_program
from rookery.proxy.passage import Passage, PassageTable
from rookery.proxy.settings import ProxySettings
from rookery.wire.codec import table_of
from rookery.wire.message import Message
from rookery.wire.messages.produce import PRODUCE

if TYPE_CHECKING:
    from rookery.proxy.direct import _window as _module
else:
    _module = native.load("rookery.proxy.direct._window", "rookery.proxy.direct.windowtwin")

RelayRules = _module.RelayRules
RuleRow = tuple[int, int, int, int, Sequence[int] | None]

_FIRST_WITH_TRANSACTION: Final = 3


def relay_rules(passages: PassageTable, limits: ProxySettings) -> RelayRules | None:
    """Return the rules of a virtual cluster; None if the native code was not built."""
    if not hasattr(_module, "RequestEnd"):
        return None
    rows = rule_rows(passages, limits.request_timeout_ms, limits.rebalance_timeout_ms)
    return RelayRules(rows)


def rule_rows(
    passages: PassageTable, request_timeout_ms: int, slow_timeout_ms: int
) -> list[RuleRow]:
    """Return the rows of all passages that need no decoding, or only in rare cases."""
    rows: list[RuleRow] = []
    for passage in passages.rows():
        is_relayed, program = _response_steps(passage)
        if is_relayed:
            timeout_ms = slow_timeout_ms if passage.is_slow else request_timeout_ms
            form = _acks_form(passage)
            rows.append((passage.api.key, passage.version, timeout_ms, form, program))
    return rows


def _response_steps(passage: Passage) -> tuple[bool, Sequence[int] | None]:
    """Return whether the API is relayed, and the steps over its response if any are needed."""
    is_other = passage.can_be_one_way and passage.api is not PRODUCE
    if passage.is_filtered or passage.is_api_versions or is_other:
        return False, None
    if not passage.has_addresses:
        return True, None
    if not passage.has_hints or not passage.api.is_flexible(passage.version):
        return False, None
    response: type[Message] = passage.api.response
    tagged = table_of(response, passage.version).tagged.values()
    if not any(step.name == "node_endpoints" for step in tagged):
        # They are among the fields that the steps lead over.
        return False, None
    program = skip_program(response, passage.version)
    return program is not None, program


def _acks_form(passage: Passage) -> AcksForm:
    if not passage.can_be_one_way:
        return AcksForm.UNREAD
    if passage.api.is_flexible(passage.version):
        return AcksForm.AFTER_COMPACT
    return AcksForm.AFTER_SHORT if passage.version >= _FIRST_WITH_TRANSACTION else AcksForm.FIRST
