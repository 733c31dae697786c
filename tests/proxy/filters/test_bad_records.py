"""Damaged and hostile records cost their own request, with an error that says so."""

from __future__ import annotations

import base64
import inspect
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.errors import ErrorCode
from rookery.proxy.edits.envelope import DataKey, ValueSealer
from rookery.proxy.edits.fetchedit import edit_fetched
from rookery.proxy.edits.producefilter import ProduceFilter
from rookery.proxy.filterapi import Answer, Filter, Forward
from rookery.proxy.filters.encryption import Encryption, UnknownKeyError
from rookery.proxy.passage import mirror_passages
from rookery.records import batches, recordcodec
from rookery.records.compression import CODECS, GZIP, Codec
from rookery.records.recordcodec import BatchSettings, Record
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.proxy.edits.test_fetchedit import fetched
from tests.proxy.filters.samples import make, samples
from tests.proxy.filters.test_contract import context_of

KINDS = ["encryption", "headers", "record_schema"]
REFUSALS = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}


@pytest.fixture(params=KINDS)
def busy(request: pytest.FixtureRequest, tmp_path: Path) -> Filter:
    """Each filter that reads records."""
    made = make(request.param, samples(tmp_path)[request.param].busy)
    if isinstance(made, Encryption):
        key = DataKey("k", bytes(16), bytes(32))
        made._sealer = ValueSealer(key)
        made._looked_ms = 1_000
    return made


def decide(tried: Filter, records: bytes) -> tuple[Any, ErrorCode | None]:
    """Return the verdict on a request with some records, and the code of its partition."""
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1,
        topic_data=[
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(index=0, records=records)]
            )
        ],
    )
    assert isinstance(tried, ProduceFilter)
    verdict = tried.edit_produce(context_of(mirror_passages([tried]), PRODUCE.key, 9), request)
    assert not inspect.isawaitable(verdict)
    if isinstance(verdict, Answer):
        assert isinstance(verdict.response, ProduceResponse)
        return verdict, verdict.response.responses[0].partition_responses[0].error_code
    assert isinstance(verdict, Forward)
    return verdict, None


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    codec=st.sampled_from(list(CODECS.values())),
    is_sealed=st.booleans(),
)
def test_damaged_records_are_refused(
    busy: Filter, data: st.DataObject, codec: Codec, is_sealed: bool
) -> None:
    records = [Record(b"k", b'{"id": 1}', (("h", b"v"),), 1_000 + n) for n in range(3)]
    batch = recordcodec.build(records, BatchSettings(codec=codec))
    header = batches.parse(batch)
    body = bytearray(batch[batches.HEADER_SIZE :])
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    end = data.draw(st.integers(1, len(body)))
    damaged = bytes(body[:end])
    head = batches.seal(header, damaged) if is_sealed else batch[: batches.HEADER_SIZE]

    verdict, code = decide(busy, head + damaged)

    assert code in REFUSALS or isinstance(verdict, Forward)


def test_records_that_expand_beyond_the_limit_are_refused(busy: Filter) -> None:
    bomb = recordcodec.build([Record(None, bytes(70 << 20))], BatchSettings(codec=GZIP))

    _, code = decide(busy, bomb)

    assert code is ErrorCode.MESSAGE_TOO_LARGE


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.binary(max_size=40), field=st.binary(max_size=40), is_field=st.booleans())
def test_forged_envelopes_are_not_delivered_and_do_no_harm(
    tmp_path_factory: pytest.TempPathFactory, value: bytes, field: bytes, is_field: bool
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    options = dict(samples(folder)["encryption"].busy)
    forged = b"\x00RE\x01" + value
    if is_field:
        options["fields"] = ["a"]
        text = base64.b64encode(b"\x00RE\x01" + field).decode()
        forged = f'{{"a": "rookery-encrypted:{text}"}}'.encode()
    made = make("encryption", options)
    assert isinstance(made, Encryption)
    response = fetched(recordcodec.build([Record(None, forged)]))

    try:
        _, problems = edit_fetched(response, made.topics, made._open_batch)
    except UnknownKeyError:
        # The key that the envelope names is asked for first.
        return
    assert problems
    partition = response.responses[0].partitions[0]
    assert partition.error_code is ErrorCode.CORRUPT_MESSAGE
    assert partition.records == b""
