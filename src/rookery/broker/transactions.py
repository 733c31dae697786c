"""What the handlers of transactions share: events in, Kafka's codes out.

Any broker can serve any transaction, since all that is decided is decided when it is applied. Who
looks after timeouts is a hint like a partition's leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, Final

from rookery.broker.call import Call
from rookery.broker.groups.offsets import (
    CommitAuthor,
    Proposals,
    commit_gate,
    offset_parts,
    outcomes_of,
)
from rookery.broker.groups.requests import refusal
from rookery.broker.groups.subject import GroupSeat
from rookery.cluster.events.groups import OffsetCommitted
from rookery.cluster.events.txns import TransactionOffsetsCommitted, TransactionPlace
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.txns import Transaction, TransactionOwner
from rookery.errors import ApiError, Error, ErrorCode
from rookery.wire.message import Message

# An entry is bounded, and others want room in it too.
_PLACES: Final = 4_000


async def decide(call: Call, event: Message) -> Any:
    """Have an event applied; return its outcome's value.

    Raises:
        ApiError: it was refused, as the cluster log has it; or (NOT_COORDINATOR,
            COORDINATOR_NOT_AVAILABLE) this broker is fenced, or the log is out of reach.
    """
    return checked(await _outcome(call.services.replica.propose([event])))


async def _outcome(future: Awaitable[list[Outcome]]) -> Outcome:
    """Wait for one outcome; what fails is told in words that transactional clients know."""
    try:
        [outcome] = await future
    except ApiError:
        raise
    except Error as error:
        raise refusal(error) from error
    return outcome


def checked(outcome: Outcome) -> Any:
    """Return an outcome's value, or raise its error."""
    if outcome.error is not ErrorCode.NONE:
        raise ApiError(outcome.error)
    return outcome.value


def told(error: ApiError, *, knows_fenced: bool) -> ApiError:
    """Return an error as the client knows it: older ones have no word for being fenced."""
    if error.code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, error.text)
    return error


def check_id(transactional_id: str | None) -> str:
    """Refuse a transactional id without a name."""
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    return transactional_id


def owned(call: Call, transactional_id: str, writer: TransactionOwner) -> Transaction:
    """Find a transactional id whose producer this is, as far as the log is applied here.

    Raises:
        ApiError: INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED.
    """
    found = call.state.transactions.by_id.get(transactional_id)
    if found is None or found.writer.producer_id != writer.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if found.writer != writer:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    return found


def parts(places: Sequence[TransactionPlace]) -> Iterator[list[TransactionPlace]]:
    """Divide partitions into as many as an event may name; of none, there is one part."""
    for start in range(0, max(len(places), 1), _PLACES):
        yield list(places[start : start + _PLACES])


async def commit_offsets(
    call: Call, who: CommitAuthor, event: TransactionOffsetsCommitted
) -> list[ErrorCode]:
    """Let a group's offsets be part of a transaction; return what became of each.

    Raises:
        ApiError: the committer may not, or the group's coordinator is another broker.
    """
    replica = call.services.replica

    def propose(seat: GroupSeat) -> Proposals:
        code = commit_gate(seat).check_commit(
            who.member_id, who.generation, who.instance_id, is_transactional=True
        )
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"a commit for group {who.group_id!r}")
        # A commit of nothing still says that the group is part of the transaction.
        some = list(offset_parts(event.offsets)) or [[]]
        return [replica.propose([_part(event, seat.epoch, offsets)]) for offsets in some]

    proposals = await call.services.groups.run(who.group_id, propose, creates=True)
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
