"""Encrypts the values of records, or named fields of JSON values, and decrypts them for consumers.

Brokers store and replicate ciphertext only. Keys of records stay as they are, so that partitioning
and compaction work, and tombstones stay null. Values that were produced past the proxy pass as they
are. A value that cannot be decrypted is never delivered: its partition has an error instead.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from rookery.clock import SystemRandom
from rookery.errors import Corrupt, ErrorCode
from rookery.proxy.edits.envelope import (
    EnvelopeHead,
    ValueOpener,
    ValueSealer,
    is_sealed,
    open_rows,
)
from rookery.proxy.edits.fetchedit import (
    FetchResponses,
    count_bytes,
    edit_fetched,
    list_ids,
)
from rookery.proxy.edits.jsonfields import parse_paths, replace_fields
from rookery.proxy.edits.keyservice import open_key_service
from rookery.proxy.edits.producefilter import (
    THREAD_FROM_BYTES,
    ProduceFilter,
    RefusedRecords,
)
from rookery.proxy.edits.topicchoice import TOPICS, read_texts
from rookery.proxy.filterapi import (
    FORWARD,
    FilterContext,
    Forward,
    Verdict,
    on_request,
    on_response,
)
from rookery.records.batches import BatchHeader
from rookery.records.compression import NONE
from rookery.records.kernel import Buffer
from rookery.records.recordcodec import Record
from rookery.records.recordedit import RecordFields, edit
from rookery.wire.messages.fetch import FETCH
from rookery.wire.messages.produce import PRODUCE, ProduceRequest
from rookery.wire.messages.share_fetch import SHARE_FETCH

log = logging.getLogger(__name__)

_PREFIX: Final = "rookery-encrypted:"
_LOOK_MS: Final = 1_000
"""How often the service is asked whether the key is still the active one."""
_MAX_OPENERS: Final = 10_000
_MAX_LOGGED: Final = 1_000


class UnknownKeyError(Exception):
    """A data key has not been unwrapped yet."""

    def __init__(self, head: EnvelopeHead, key: bytes) -> None:
        super().__init__(head.name)
        self.head = head
        self.key = key


class Encryption(ProduceFilter):
    """Encrypts what clients produce, and decrypts what they fetch."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "keys_file": "A TOML file with the keys, mode 0600.",
        "key_service": "Another source of keys: an entry point of the group `rookery.keys`.",
        "key_service_options": "The options of that source.",
        "fields": "Paths of the JSON fields that are encrypted; by default, whole values are.",
        "topics": TOPICS,
    }

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._keys = open_key_service(self.options, SystemRandom())
        self._paths = parse_paths(read_texts(self.options, "fields"))
        self._sealer: ValueSealer | None = None
        self._looked_ms = 0
        self._openers: dict[bytes, ValueOpener | Corrupt] = {}
        self._logged: set[str] = set()

    async def start(self) -> None:
        """Create the first data key."""
        self._sealer = ValueSealer(await self._keys.create())

    @on_request(PRODUCE)
    def edit_produce(
        self, context: FilterContext, request: ProduceRequest
    ) -> Verdict | Awaitable[Verdict]:
        """Encrypt the records of each partition."""
        if context.clock.monotonic_ms() - self._looked_ms < _LOOK_MS:
            return super().edit_produce(context, request)
        return self._rotate(context, request)

    async def _rotate(self, context: FilterContext, request: ProduceRequest) -> Verdict:
        """Use another data key if another key is active, then encrypt."""
        if self._sealer is None or not await self._keys.is_current(self._sealer.key.name):
            self._sealer = ValueSealer(await self._keys.create())
        self._looked_ms = context.clock.monotonic_ms()
        verdict = super().edit_produce(context, request)
        return await verdict if isinstance(verdict, Awaitable) else verdict

    def edit_batch(
        self, context: FilterContext, topic: str, records: Buffer, header: BatchHeader
    ) -> bytes | None:
        """Return the batch with encrypted values."""
        if header.is_control:
            return None
        if self._paths:
            return edit(records, header, self._seal_fields)
        # Ciphertext cannot be compressed.
        return edit(records, header, self._seal_values, NONE)

    def _seal_values(self, records: Iterator[Record]) -> list[RecordFields]:
        assert self._sealer is not None  # noqa: S101 (there is one since the start)
        return self._sealer.seal_rows(records)

    def _seal_fields(self, records: Iterator[Record]) -> list[Record]:
        assert self._sealer is not None  # noqa: S101 (there is one since the start)
        seal = self._sealer.seal
        sealed: list[Record] = []
        wrong: list[tuple[int, str]] = []
        for index, record in enumerate(records):
            if record.value is None:
                sealed.append(record)
                continue

            def change(text: str, key: bytes | None = record.key) -> str:
                return f'"{_PREFIX}{b64encode(seal(text.encode(), key)).decode()}"'

            try:
                sealed.append(record._replace(value=self._change_fields(record.value, change)))
            except ValueError:
                wrong.append((index, "the value is not JSON, so that it cannot be encrypted"))
        if wrong:
            raise RefusedRecords(
                ErrorCode.INVALID_RECORD, f"{len(wrong)} values are not JSON", wrong
            )
        return sealed

    def _change_fields(self, value: bytes, change: Callable[[str], str]) -> bytes:
        return replace_fields(value.decode(), self._paths, change).encode()

    @on_response(FETCH, SHARE_FETCH)
    def open_fetched(
        self, context: FilterContext, response: FetchResponses
    ) -> Verdict | Awaitable[Verdict]:
        """Decrypt the records of each partition."""
        missing = self.topics.find_missing(list_ids(response))
        if missing or count_bytes(response) > THREAD_FROM_BYTES:
            return self._open_later(context, response, missing)
        try:
            return self._open(response)
        except UnknownKeyError:
            return self._open_later(context, response, missing)

    async def _open_later(
        self, context: FilterContext, response: FetchResponses, missing: list[bytes]
    ) -> Verdict:
        if missing:
            await self.topics.names.find(context, missing)
        closed: list[bytes] = []
        try:
            while True:
                try:
                    if count_bytes(response) > THREAD_FROM_BYTES:
                        return await asyncio.to_thread(self._open, response)
                    return self._open(response)
                except UnknownKeyError as unknown:
                    if not await self._learn(unknown):
                        closed.append(unknown.key)
        finally:
            # The next fetch asks for them again: the key may have been added since.
            for key in closed:
                self._openers.pop(key, None)

    async def _learn(self, unknown: UnknownKeyError) -> bool:
        """Unwrap a data key; return whether it can be. One that cannot be opens nothing."""
        head = unknown.head
        if len(self._openers) >= _MAX_OPENERS:
            del self._openers[next(iter(self._openers))]
        try:
            self._openers[unknown.key] = ValueOpener(
                await self._keys.unwrap(head.name, head.wrapped)
            )
        except Corrupt as error:
            self._openers[unknown.key] = error
            return False
        return True

    def _open(self, response: FetchResponses) -> Verdict:
        is_changed, problems = edit_fetched(response, self.topics, self._open_batch)
        for problem in problems:
            if problem not in self._logged and len(self._logged) < _MAX_LOGGED:
                self._logged.add(problem)
                log.error("records cannot be decrypted: %s", problem)
        return Forward(response) if is_changed else FORWARD

    def _open_batch(self, records: Buffer, header: BatchHeader) -> bytes | None:
        if header.is_control or not header.record_count:
            return None
        is_changed = False

        def change(rows: Iterator[Record]) -> Iterable[RecordFields]:
            nonlocal is_changed
            opened, is_changed = (
                self._open_fields(rows) if self._paths else open_rows(rows, self._find_opener)
            )
            return opened

        changed = edit(records, header, change)
        return changed if is_changed else None

    def _find_opener(self, head: EnvelopeHead, key: bytes) -> ValueOpener:
        opener = self._openers.get(key)
        if opener is None:
            raise UnknownKeyError(head, key)
        if isinstance(opener, Corrupt):
            raise Corrupt(str(opener))
        return opener

    def _open_value(self, value: bytes, record_key: bytes | None) -> bytes:
        [row], _ = open_rows([Record(record_key, value)], self._find_opener)
        return row[1] or b""

    def _open_fields(self, rows: Iterator[Record]) -> tuple[list[RecordFields], bool]:
        opened: list[RecordFields] = []
        is_changed = False
        for row in rows:
            value = row.value
            if value is not None:
                value = self._open_field_value(value, row.key)
            is_changed |= value is not row.value
            opened.append(row._replace(value=value))
        return opened, is_changed

    def _open_field_value(self, value: bytes, record_key: bytes | None) -> bytes:
        if _PREFIX.encode() not in value:
            return value

        def change(text: str) -> str:
            if not text.startswith(f'"{_PREFIX}'):
                return text
            try:
                envelope = b64decode(json.loads(text).removeprefix(_PREFIX), validate=True)
            except ValueError as error:
                raise Corrupt("an encrypted field is not in base64") from error
            if not is_sealed(envelope):
                raise Corrupt("an encrypted field has no envelope")
            return self._open_value(envelope, record_key).decode()

        try:
            return self._change_fields(value, change)
        except ValueError:
            # Not JSON: it was produced past the proxy.
            return value
