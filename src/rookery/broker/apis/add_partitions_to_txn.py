"""AddPartitionsToTxn: adds the partitions that a transaction is about to write to.

Either all partitions of a transaction are added or none. From version 4 on, one request covers
several transactions and can ask only to verify that partitions are in a transaction.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.groups.requests import reach_head
from rookery.broker.transactions import check_id, convert_error, decide, find_owned, parts
from rookery.cluster.events.txnevents import PartitionsAddedToTransaction, TransactionPlace
from rookery.cluster.state.txns import TransactionOwner
from rookery.errors import ApiError, Error, ErrorCode, code_of
from rookery.wire.messages.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_KNOWS_FENCED: Final = 2
_BATCHED: Final = 4


_KNOWS_ABORTABLE: Final = 5

_Codes = dict[tuple[str, int], ErrorCode]


@handles(
    ADD_PARTITIONS_TO_TXN,
    mutates=True,
)
async def add_partitions_to_txn(
    call: Call, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions to transactions, or verify that they were added."""
    if call.version >= _BATCHED:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=await _answer(call, transaction),
                )
                for transaction in request.transactions
            ]
        )
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _answer(call, only))


async def _answer(
    call: Call, asked: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    try:
        check_id(asked.transactional_id)
        codes = await (_verify(call, asked) if asked.verify_only else _add(call, asked))
    except Error as error:
        if isinstance(error, ApiError):
            error = convert_error(error, knows_fenced=call.version >= _KNOWS_FENCED)
        codes = dict.fromkeys(_names(asked.topics), code_of(error))
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[topic.name, index]
                )
                for index in topic.partitions
            ],
        )
        for topic in asked.topics
    ]


async def _add(call: Call, asked: AddPartitionsToTxnTransaction) -> _Codes:
    names = _names(asked.topics)
    unknown = [name for name in names if _place(call, *name) is None]
    if unknown:
        await reach_head(call)
        unknown = [name for name in names if _place(call, *name) is None]
    if unknown:
        codes = dict.fromkeys(names, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return codes | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    places = [place for name in names if (place := _place(call, *name)) is not None]
    for some in parts(places):
        await decide(
            call,
            PartitionsAddedToTransaction(
                transactional_id=asked.transactional_id,
                producer_id=asked.producer_id,
                producer_epoch=asked.producer_epoch,
                places=some,
            ),
        )
    return dict.fromkeys(names, ErrorCode.NONE)


async def _verify(call: Call, asked: AddPartitionsToTxnTransaction) -> _Codes:
    """Return for each partition whether it is in the transaction, without adding any."""
    await reach_head(call)
    writer = TransactionOwner(asked.producer_id, asked.producer_epoch)
    transaction = find_owned(call, asked.transactional_id, writer)
    absent = (
        ErrorCode.TRANSACTION_ABORTABLE
        if call.version >= _KNOWS_ABORTABLE
        else ErrorCode.INVALID_TXN_STATE
    )
    codes: _Codes = {}
    for name in _names(asked.topics):
        place = _place(call, *name)
        is_in = place is not None and (place.topic_id, place.partition) in transaction.partitions
        codes[name] = ErrorCode.NONE if is_in else absent
    return codes


def _names(topics: list[AddPartitionsToTxnTopic]) -> list[tuple[str, int]]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _place(call: Call, name: str, index: int) -> TransactionPlace | None:
    topic = call.state.topics.by_name.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return TransactionPlace(topic_id=topic.id, partition=index)
