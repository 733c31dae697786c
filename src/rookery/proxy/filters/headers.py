"""Adds headers to produced records: fixed texts, and the identity of the producer.

A client's own headers with these names are removed, so that consumers can trust them.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Any, ClassVar, Final

from rookery.errors import ConfigError
from rookery.proxy.edits.producefilter import ProduceFilter
from rookery.proxy.edits.topicchoice import TOPICS
from rookery.proxy.filterapi import FilterContext
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer
from rookery.records.recordcodec import Record
from rookery.records.recordedit import edit

_KNOWN: Final = ("principal", "client_id", "host", "cluster")
_MAX_TEXT: Final = 1_024
"""How much of a client id is added; clients choose it."""


class RecordHeaders(ProduceFilter):
    """Adds headers to every record."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "headers": "A table of names and texts; $principal, $client_id, $host and $cluster stand "
        "for those of the client.",
        "topics": TOPICS,
    }

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        texts = self.options.get("headers")
        if not isinstance(texts, dict) or not texts:
            raise ConfigError('set the option headers, such as {producer = "$principal"}')
        self._templates = {name: _template(name, text) for name, text in texts.items()}

    def edit_batch(
        self, context: FilterContext, topic: str, records: Buffer, header: BatchHeader
    ) -> bytes | None:
        """Return the batch with headers."""
        values = {
            "principal": context.principal,
            "client_id": (context.client_id or "")[:_MAX_TEXT],
            "host": context.session.host,
            "cluster": context.cluster,
        }
        added = tuple(
            (name, template.substitute(values).encode())
            for name, template in self._templates.items()
        )
        names = self._templates.keys()

        def add(record: Record) -> Record:
            key, value, headers, timestamp, offset = record
            if headers:
                headers = tuple(each for each in headers if each[0] not in names)
            return Record(key, value, headers + added, timestamp, offset)

        return edit(records, header, lambda rows: map(add, rows))


def _template(name: str, text: object) -> Template:
    if not isinstance(text, str):
        raise ConfigError(f"headers: {name} must be a text")
    template = Template(text)
    unknown = sorted(set(template.get_identifiers()) - set(_KNOWN))
    if unknown or not template.is_valid():
        known = ", ".join(f"${each}" for each in _KNOWN)
        raise ConfigError(f"headers: {name}: {text!r} can contain {known}, and $$ for a dollar")
    return template
