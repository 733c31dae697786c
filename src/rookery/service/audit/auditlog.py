"""Writes audit records to a file from a thread of its own, so that no client waits for the disk.

    write ──► bounded queue ──► thread ──► file
                   │
                   └── full: the record is dropped and counted

The file is opened again if it was moved or deleted, so that any tool can rotate it. Brokers that
share a host can share a file: each write consists of whole lines at its end.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from rookery import metrics
from rookery.clock import Clock
from rookery.errors import ConfigError
from rookery.net.session import ClientSession
from rookery.security.access import Operation
from rookery.security.acl import AclBinding
from rookery.security.aclrules import ProtectedResource
from rookery.security.audit import AuditKind, AuditRecord, AuditVerdict, cut_text, dropped_line
from rookery.service.audit.changes import AuditedChange

log = logging.getLogger(__name__)

DROPPED: Final = metrics.REGISTRY.counter(
    "rookery_audit_dropped_total", "Audit records that could not be written."
)
_MAX_QUEUED: Final = 10_000
_CLOSE_SECONDS: Final = 5.0
_MODE: Final = 0o600


class AuditLine(Protocol):
    """What can be written to the audit file."""

    def to_json(self) -> str:
        """Return the record as one line, without the line feed."""


class AuditLog:
    """The audit file of one process."""

    def __init__(self, path: str, clock: Clock, *, max_queued: int = _MAX_QUEUED) -> None:
        """Open the file and start the thread.

        Args:
            path: the file; it is created with mode 0600, and lines are added at its end.
            clock: gives the time of records.
            max_queued: the number of records that can wait for the disk.

        Raises:
            ConfigError: the file cannot be opened.
        """
        self._path = path
        self._clock = clock
        self._max_queued = max_queued
        self._queue: deque[AuditLine] = deque()
        self._dropped = 0
        self._is_closing = False
        self._is_failing = False
        # Whether the file ends within a line, because the disk was full.
        self._is_torn = False
        self._wake = threading.Condition()
        try:
            self._file = self._open()
        except OSError as error:
            raise ConfigError(error.strerror or str(error), name="audit_file") from error
        self._thread = threading.Thread(target=self._run, name="rookery-audit", daemon=True)
        self._thread.start()

    def write(self, record: AuditLine) -> None:
        """Queue a record; drop it if too many wait. Never waits for the disk."""
        with self._wake:
            if len(self._queue) >= self._max_queued or self._is_closing:
                self._dropped += 1
                DROPPED.inc()
                return
            self._queue.append(record)
            self._wake.notify()

    def record_login(self, client: ClientSession, principal: str, *, reason: str = "") -> None:
        """Record a login, or why it failed."""
        record = self._record(AuditKind.LOGIN, client, _verdict(reason))
        self.write(replace(record, principal=cut_text(principal), reason=reason or None))

    def record_denial(
        self,
        client: ClientSession,
        operation: Operation,
        resource: ProtectedResource,
        rule: AclBinding | None,
        *,
        is_enforced: bool,
    ) -> None:
        """Record an operation that the access rules deny, with the rule that was decisive."""
        verdict = AuditVerdict.DENIED if is_enforced else AuditVerdict.WOULD_DENY
        record = self._record(AuditKind.ACCESS, client, verdict)
        named = resource._replace(name=cut_text(resource.name))
        self.write(replace(record, resource=named, operation=operation, rule=rule))

    def record_change(
        self, client: ClientSession, api: str, change: AuditedChange, *, reason: str = ""
    ) -> None:
        """Record an administrative change, or why it was refused."""
        record = self._record(AuditKind.CHANGE, client, _verdict(reason))
        self.write(
            replace(
                record,
                api=api,
                resource=change.resource,
                operation=change.operation,
                rule=change.rule,
                quota=change.quota,
                reason=reason or None,
            )
        )

    def _record(self, kind: AuditKind, client: ClientSession, verdict: AuditVerdict) -> AuditRecord:
        """Return the fields that all records have."""
        return AuditRecord(
            time=self._clock.now_ms(),
            kind=kind,
            principal=client.principal or "",
            host=client.host,
            listener=client.listener,
            decision=verdict,
        )

    def close(self) -> None:
        """Write the queued records and stop the thread; waits a limited time for the disk."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            log.error("audit records are lost: %s cannot be written", self._path)
        else:
            os.close(self._file)

    # The thread.

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._queue and not self._is_closing:
                    self._wake.wait()
                records, self._queue = self._queue, deque()
                dropped, self._dropped = self._dropped, 0
                is_last = self._is_closing
            lines = [record.to_json() for record in records]
            if dropped:
                lines.append(self._dropped_line(dropped))
            if lines:
                self._store("".join(f"{line}\n" for line in lines).encode(), len(lines))
            if is_last:
                return

    def _store(self, data: bytes, count: int) -> None:
        rest = data
        try:
            self._follow_rotation()
            if self._is_torn:
                os.write(self._file, b"\n")
                self._is_torn = False
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            written = data[: len(data) - len(rest)]
            self._is_torn |= bool(written) and not written.endswith(b"\n")
            self._fail(count - written.count(b"\n"), error)
            return
        if self._is_failing:
            log.info("audit records are written to %s again", self._path)
        self._is_failing = False

    def _fail(self, count: int, error: OSError) -> None:
        DROPPED.inc(count)
        with self._wake:
            self._dropped += count
        if not self._is_failing:
            log.error("audit records are lost: %s: %s", self._path, error)
        self._is_failing = True

    def _follow_rotation(self) -> None:
        """Open the file again if its name belongs to another file now, or to none."""
        ours = os.fstat(self._file)
        with suppress(FileNotFoundError):
            if os.path.samestat(ours, os.stat(self._path)):  # noqa: PTH116 (compared with fstat)
                return
        opened = self._open()
        os.close(self._file)
        self._file, self._is_torn = opened, False

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._path, flags, _MODE)

    def _dropped_line(self, count: int) -> str:
        log.warning("%d audit records were dropped", count)
        return dropped_line(self._clock.now_ms(), count)


def _verdict(reason: str) -> AuditVerdict:
    """Return the outcome of an attempt that was refused for a reason, or succeeded without one."""
    return AuditVerdict.DENIED if reason else AuditVerdict.ALLOWED
