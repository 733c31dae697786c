"""A segment as `rookery segment dump` shows it: as JSON and as readable text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from rookery.cli.output import lines
from rookery.errors import Error
from rookery.formats.examine import Examination, ExaminedBatch, SegmentFault
from rookery.formats.keys import (
    INDEX_ENDING,
    SEGMENT_ENDING,
    TIMES_ENDING,
    parse_segment_key,
)
from rookery.formats.times import Times
from rookery.model.partition import TopicPartition
from rookery.model.uuid import uuid_text
from rookery.records import recordcodec
from rookery.records.batches import TimestampType

ENDINGS: Final = (SEGMENT_ENDING, INDEX_ENDING, TIMES_ENDING)

Files = dict[str, bytes | None]
"""The contents of a segment's files by their endings; None for one that is not there."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_DATE_MS: Final = 253_402_300_799_999


def as_json(
    stem: str, files: Files, examination: Examination, *, with_records: bool
) -> dict[str, object]:
    """Return the contents and faults as JSON."""
    return {
        "segment": stem + SEGMENT_ENDING,
        "sizes": {ending[1:]: len(data) for ending, data in files.items() if data is not None},
        "header": examination.header and examination.header._asdict(),
        "footer": examination.footer and examination.footer._asdict(),
        "index": examination.index
        and {
            "interval": examination.index.interval,
            "entries": [entry._asdict() for entry in examination.index.entries],
        },
        "times": examination.times and _times_row(examination.times),
        "batches": [
            {
                **_batch_row(batch),
                **({"records": _record_rows(files, batch)} if with_records else {}),
            }
            for batch in examination.batches
        ],
        "damage": [
            {"file": stem + fault.ending, "position": fault.position, "what": fault.text}
            for fault in examination.faults
        ],
    }


def _times_row(times: Times) -> dict[str, object]:
    return {
        **times.origin._asdict(),
        "topic_id": uuid_text(times.origin.topic_id),
        "blocks": [block._asdict() for block in times.blocks],
        "aborted": [transaction._asdict() for transaction in times.aborted],
        "epochs": [epoch._asdict() for epoch in times.epochs],
    }


def _batch_row(batch: ExaminedBatch) -> dict[str, object]:
    header = batch.header
    return {
        "position": header.position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": header.timestamp_type.name,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "codec": _codec(batch),
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "crc": header.crc,
        "crc_ok": batch.is_sound,
    }


def _codec(batch: ExaminedBatch) -> str:
    try:
        return batch.header.codec.name
    except Error:
        return "unknown"


def _record_rows(files: Files, batch: ExaminedBatch) -> list[dict[str, Any]] | None:
    """Return the records of a batch; None if it is damaged, since they may then be wrong."""
    data = files[SEGMENT_ENDING]
    if data is None or not batch.is_sound:
        return None
    try:
        records = list(recordcodec.read(data, batch.header))
    except Error:
        return None
    rows = [json.loads(lines.to_json(TopicPartition("", 0), record)) for record in records]
    return [
        {name: value for name, value in row.items() if name not in ("topic", "partition")}
        for row in rows
    ]


def as_text(
    stem: str, files: Files, examination: Examination, *, with_records: bool
) -> Iterator[str]:
    """Yield the contents and faults as readable lines."""
    yield from _title(stem, files)
    yield from _ends(examination)
    yield from _beside(examination)
    for batch in examination.batches:
        yield _batch_line(batch)
        if with_records:
            yield from _record_lines(files, batch)
    yield from (_fault_line(stem, fault) for fault in examination.faults)
    yield "damaged" if examination.faults else "sound"


def _title(stem: str, files: Files) -> Iterator[str]:
    key = parse_segment_key("/".join(Path(stem + SEGMENT_ENDING).parts[-4:]))
    place = f": {key.namespace}, {key.topic}-{key.partition}" if key else ""
    yield f"{stem}{SEGMENT_ENDING}{place}"
    sizes = [f"{ending} {len(data)} bytes" for ending, data in files.items() if data is not None]
    missing = [ending for ending, data in files.items() if data is None]
    yield "files    " + ", ".join(sizes + [f"no {ending}" for ending in missing])


def _ends(examination: Examination) -> Iterator[str]:
    if examination.header is not None:
        base, count, created = examination.header
        yield f"header   base offset {base}, {_count(count)}, created {_when(created)}"
    if examination.footer is not None:
        crc, last_offset = examination.footer
        yield f"footer   last offset {last_offset}, CRC-32C {crc:#010x}"


def _beside(examination: Examination) -> Iterator[str]:
    if examination.index is not None:
        entries = _count(len(examination.index.entries), "entry", "entries")
        yield f"index    {entries}, the next after {examination.index.interval} messages"
    if examination.times is None:
        return
    origin = examination.times.origin
    yield (
        f"times    {origin.namespace}/{origin.topic}/{origin.partition}, topic id "
        f"{uuid_text(origin.topic_id)}, object {origin.number} of incarnation {origin.incarnation}"
    )
    for transaction in examination.times.aborted:
        offsets = f"{transaction.first_offset}-{transaction.last_offset}"
        yield f"aborted  producer {transaction.producer_id}, offsets {offsets}"
    for epoch in examination.times.epochs:
        yield f"epoch    {epoch.epoch} from offset {epoch.start_offset}"


def _batch_line(batch: ExaminedBatch) -> str:
    header = batch.header
    clock = "appended" if header.timestamp_type is TimestampType.LOG_APPEND_TIME else "created"
    marks = [
        mark
        for mark, is_set in (
            ("transactional", header.is_transactional),
            ("control", header.is_control),
        )
        if is_set
    ]
    if header.has_producer_id:
        marks.append(
            f"producer {header.producer_id} epoch {header.producer_epoch} "
            f"sequence {header.base_sequence}"
        )
    return "  ".join(
        (
            f"{header.position:>10}  {header.base_offset}-{header.last_offset}",
            _count(header.record_count),
            f"{header.size} bytes",
            f"{clock} up to {_when(header.max_timestamp)}",
            f"epoch {header.partition_leader_epoch}",
            _codec(batch),
            *marks,
            "CRC ok" if batch.is_sound else "CRC WRONG",
        )
    )


def _record_lines(files: Files, batch: ExaminedBatch) -> Iterator[str]:
    rows = _record_rows(files, batch)
    if rows is None:
        yield f"{'':12}its records cannot be read"
    for row in rows or ():
        yield f"{'':12}{json.dumps(row, ensure_ascii=False)}"


def _fault_line(stem: str, fault: SegmentFault) -> str:
    return f"DAMAGE   {stem}{fault.ending}, byte {fault.position}: {fault.text}"


def _count(number: int, singular: str = "record", plural: str = "records") -> str:
    return f"{number} {singular if number == 1 else plural}"


def _when(time_ms: int) -> str:
    """Format a timestamp as a date and time, if it is valid."""
    if not 0 <= time_ms <= _LAST_DATE_MS:
        return str(time_ms)
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
