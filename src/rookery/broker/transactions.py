"""Shared by the handlers of transactions: proposes events, returns Kafka's error codes.

Any broker can serve any transaction, since all decisions are made when events are applied. The
broker responsible for timeouts is a hint, like a partition's leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, Final

from rookery.broker.call import Call
from rookery.broker.groups.offsets import CommitAuthor, Proposals, commit_gate, outcomes_of
from rookery.broker.groups.requests import is_too_long, refusal
from rookery.broker.groups.subject import GroupSeat
from rookery.cluster.entry import divide_offsets
from rookery.cluster.events.groupevents import OffsetCommitted
from rookery.cluster.events.txnevents import TransactionOffsetsCommitted, TransactionPlace
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.txns import Transaction, TransactionOwner
from rookery.errors import ApiError, Error, ErrorCode
from rookery.wire.message import Message

# The size of an entry is limited, and other proposals need room in it too.
_PLACES: Final = 4_000


async def decide(call: Call, event: Message) -> Any:
    """Propose an event; return the value of its outcome.

    Raises:
        ApiError: the event was refused when it was applied; or (NOT_COORDINATOR,
            COORDINATOR_NOT_AVAILABLE) this broker is fenced, or the log is unreachable.
    """
    return unwrap(await _outcome(call.services.replica.propose([event])))


async def _outcome(future: Awaitable[list[Outcome]]) -> Outcome:
    """Wait for one outcome; convert failures into errors that transactional clients know."""
    try:
        [outcome] = await future
    except ApiError:
        raise
    except Error as error:
        raise refusal(error) from error
    return outcome


def unwrap(outcome: Outcome) -> Any:
    """Return an outcome's value, or raise its error."""
    if outcome.error is not ErrorCode.NONE:
        raise ApiError(outcome.error)
    return outcome.value


def convert_error(error: ApiError, *, knows_fenced: bool) -> ApiError:
    """Convert an error for the client: older ones do not know PRODUCER_FENCED."""
    if error.code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, error.text)
    return error


def check_id(transactional_id: str | None) -> str:
    """Refuse an empty transactional id, and one that older versions cannot carry."""
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if is_too_long(transactional_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is too long")
    return transactional_id


def find_owned(call: Call, transactional_id: str, writer: TransactionOwner) -> Transaction:
    """Return the transactional id's state if this producer owns it, as applied here.

    Raises:
        ApiError: INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED.
    """
    transaction = call.state.transactions.by_id.get(transactional_id)
    if transaction is None or transaction.writer.producer_id != writer.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.writer != writer:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    return transaction


def parts(places: Sequence[TransactionPlace]) -> Iterator[list[TransactionPlace]]:
    """Split partitions into parts that fit into an event; an empty list gives one empty part."""
    for start in range(0, max(len(places), 1), _PLACES):
        yield list(places[start : start + _PLACES])


async def commit_offsets(
    call: Call, author: CommitAuthor, event: TransactionOffsetsCommitted
) -> list[ErrorCode]:
    """Add a group's offsets to a transaction; return the result of each.

    Raises:
        ApiError: the commit is refused, or the group's coordinator is another broker.
    """
    replica = call.services.replica

    def propose(seat: GroupSeat) -> Proposals:
        code = commit_gate(seat).check_commit(
            author.member_id, author.generation, author.instance_id, is_transactional=True
        )
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"a commit for group {author.group_id!r}")
        # An empty commit still makes the group part of the transaction.
        some = list(divide_offsets(event.offsets)) or [[]]
        return [replica.propose([_part(event, seat.epoch, offsets)]) for offsets in some]

    proposals = await call.services.groups.run(author.group_id, propose, creates=True)
    return [code for outcome in await outcomes_of(proposals) for code in outcome.value]


def _part(
    event: TransactionOffsetsCommitted, group_epoch: int, offsets: list[OffsetCommitted]
) -> TransactionOffsetsCommitted:
    return TransactionOffsetsCommitted(
        transactional_id=event.transactional_id,
        producer_id=event.producer_id,
        producer_epoch=event.producer_epoch,
        group_id=event.group_id,
        group_epoch=group_epoch,
        offsets=offsets,
        joins=event.joins,
    )
