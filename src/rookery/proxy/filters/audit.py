"""Records requests in an audit file: client, host, API, resources, and the outcome.

Each is one line of JSON, as in the audit file of a broker. A thread writes them, so that no client
waits for the disk; records that it cannot keep up with are dropped, and counted in the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from rookery.clock import SystemClock
from rookery.errors import ConfigError
from rookery.proxy.edits.topicchoice import read_text, read_texts
from rookery.proxy.filterapi import (
    FORWARD,
    Filter,
    FilterContext,
    FilterFunction,
    Verdict,
    if_noted,
)
from rookery.security.audit import RequestOutcome, RequestRecord
from rookery.service.audit.auditlog import AuditLog
from rookery.wire.catalog import kafka_apis
from rookery.wire.errorcodes import error_codes
from rookery.wire.message import (
    Api,
    GroupId,
    Message,
    TopicId,
    TopicName,
    TransactionalId,
)
from rookery.wire.walk import has_kind, visit

_KINDS: Final = {
    "topic": TopicName,
    "topic id": TopicId,
    "group": GroupId,
    "transactional id": TransactionalId,
}
_MAX_RESOURCES: Final = 100
"""How many resources of each kind a record names."""


class RequestAudit(Filter):
    """Writes one record for each request."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "file": "The audit file; it is created with mode 0600, and lines are added.",
        "apis": "The names of the APIs that are recorded; by default, all.",
        "except": "The names of APIs that are not recorded.",
    }

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._path = read_text(self.options, "file")
        names = {api.name for api in kafka_apis().values()}
        chosen = read_texts(self.options, "apis")
        left_out = read_texts(self.options, "except")
        unknown = sorted({*chosen, *left_out} - names)
        if unknown:
            raise ConfigError(f"apis: there is no API {unknown[0]!r}")
        self._apis = (set(chosen) or names) - set(left_out)
        self._log: AuditLog | None = None

    async def start(self) -> None:
        """Open the file."""
        self._log = AuditLog(self._path, SystemClock())

    async def close(self) -> None:
        """Write what waits; the thread has a limited time for it."""
        if self._log is not None:
            await asyncio.to_thread(self._log.close)

    def functions(self, kind: str, api: Api[Any, Any]) -> list[FilterFunction]:
        """Return the methods for the APIs that are recorded."""
        if api.name not in self._apis:
            return []
        return [self.note if kind == "request" else self.record]

    def note(self, context: FilterContext, request: Message) -> Verdict:
        """Note what a request is about; one without a response is recorded at once."""
        resources: dict[str, list[str]] = {}
        for name, kind in _KINDS.items():
            if has_kind(type(request), kind):
                values = dict.fromkeys(value for value in visit(request, kind) if any(value))
                shown = [each.hex() if isinstance(each, bytes) else each for each in values]
                if shown:
                    resources[name] = shown[:_MAX_RESOURCES]
        if context.api.is_one_way(request):
            self._write(context, resources, RequestOutcome.SENT)
        else:
            context.notes[self] = resources
        return FORWARD

    @if_noted
    def record(self, context: FilterContext, response: Message) -> Verdict:
        """Record a request with the errors of its response."""
        errors = tuple(code.name for code in error_codes(response))
        outcome = RequestOutcome.FAILED if errors else RequestOutcome.DONE
        self._write(context, context.notes.pop(self), outcome, errors)
        return FORWARD

    def abandon(self, context: FilterContext) -> None:
        """Record a request that has no response: the broker may have served it."""
        self._write(context, context.notes.pop(self), RequestOutcome.UNKNOWN)

    def _write(
        self,
        context: FilterContext,
        resources: Mapping[str, list[str]],
        outcome: RequestOutcome,
        errors: tuple[str, ...] = (),
    ) -> None:
        if self._log is None:
            return
        session = context.session
        self._log.write(
            RequestRecord(
                time=context.clock.now_ms(),
                cluster=context.cluster,
                principal=context.principal,
                host=session.host,
                client_id=context.client_id or "",
                api=context.api.name,
                version=context.version,
                resources=resources,
                outcome=outcome,
                errors=errors,
            )
        )
