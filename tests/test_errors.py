"""Kafka's error codes against two independent tables of them."""

from __future__ import annotations

import pickle

import pytest
from kafka.errors import for_code
from kio.schema.errors import ErrorCode as KioErrorCode

from rookery.errors import (
    ApiError,
    ConfigError,
    Conflict,
    Corrupt,
    ErrorCode,
    Gone,
    ProtocolError,
    Unavailable,
    code_of,
)

# Where kafka-python departs from Apache Kafka's exception classes, which we follow.
_KAFKA_PYTHON_DIFFERS = {
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecordException is retriable",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "no metadata refresh needed, says the class's own comment",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "newer than kafka-python's table; retriable (KIP-932)",
}


@pytest.mark.parametrize("theirs", list(KioErrorCode), ids=lambda code: code.name)
def test_codes_match_kio(theirs: KioErrorCode) -> None:
    ours = ErrorCode(int(theirs))

    assert (ours.name.lower(), ours.retriable) == (theirs.name, theirs.retriable)


@pytest.mark.parametrize("ours", list(ErrorCode), ids=lambda code: code.name)
def test_codes_match_kafka_python(ours: ErrorCode) -> None:
    theirs = for_code(int(ours))

    agrees = (theirs.retriable, theirs.invalid_metadata) == (ours.retriable, ours.stale_metadata)

    assert agrees is (ours not in _KAFKA_PYTHON_DIFFERS)


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_every_code_has_a_sentence(code: ErrorCode) -> None:
    assert code.sentence.endswith(".")
    assert 10 < len(code.sentence) <= 90


def test_sentences_of_codes_are_unique() -> None:
    assert len({code.sentence for code in ErrorCode}) == len(ErrorCode)


def test_stale_metadata_implies_a_retry() -> None:
    assert all(code.retriable for code in ErrorCode if code.stale_metadata)


def test_unknown_codes_are_preserved() -> None:
    code = ErrorCode(31_999)

    assert (code.name, int(code), code.retriable, code.stale_metadata) == (
        "UNKNOWN_31999",
        31_999,
        False,
        False,
    )
    assert ErrorCode(31_999) is code


@pytest.mark.parametrize("value", [32_768, -32_769, 2**40])
def test_number_beyond_int16_is_not_a_code(value: int) -> None:
    with pytest.raises(ValueError, match="is not a valid ErrorCode"):
        ErrorCode(value)


def test_api_error_shows_code_and_text() -> None:
    assert str(ApiError(ErrorCode.INVALID_CONFIG, "max.message.bytes")) == (
        "INVALID_CONFIG: max.message.bytes"
    )
    assert str(ApiError(ErrorCode.INVALID_CONFIG)).endswith(ErrorCode.INVALID_CONFIG.sentence)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ApiError(ErrorCode.INVALID_CONFIG), ErrorCode.INVALID_CONFIG),
        (Unavailable("the disk is full"), ErrorCode.KAFKA_STORAGE_ERROR),
        (Corrupt("a bad checksum"), ErrorCode.KAFKA_STORAGE_ERROR),
        (Conflict("another broker was first"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (Gone("the object was deleted"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ProtocolError("a field is too long"), ErrorCode.INVALID_REQUEST),
        (ValueError("a defect"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else type(value).__name__,
)
def test_every_error_has_a_code_for_clients(error: Exception, code: ErrorCode) -> None:
    assert code_of(error) is code


def test_error_has_a_reason_and_a_name() -> None:
    error = ConfigError("must be above 0, not 0", name="port")

    assert (str(error), error.reason, error.name) == (
        "port: must be above 0, not 0", "must be above 0, not 0", "port",
    )  # fmt: skip
    plain = Unavailable("no answer")
    assert (str(plain), plain.reason, plain.name) == ("no answer", "no answer", "")


def test_attributes_of_an_error_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(Corrupt("its CRC is wrong", name="x.log", object_id=7)))

    assert (str(error), error.reason, error.name, error.object_id) == (
        "x.log: its CRC is wrong", "its CRC is wrong", "x.log", 7,
    )  # fmt: skip


def test_client_answer_starts_with_the_code() -> None:
    error = ApiError(ErrorCode.INVALID_RECORD, "too short", name="batch at byte 3")

    assert str(error) == "INVALID_RECORD: batch at byte 3: too short"
    assert error.text == "batch at byte 3: too short"
    assert (error.reason, error.name) == ("too short", "batch at byte 3")
    assert ApiError(ErrorCode.INVALID_RECORD).text == ""
