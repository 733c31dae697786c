"""ListTransactions (key 66): list the transactional ids that one coordinator looks after.

A client asks every broker and joins the answers (KIP-664).

Versions:
    1 can ask for transactions that have been open for some time (KIP-994).
    2 can ask for ids that match a pattern (KIP-1152).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    Api,
    Message,
    ProducerId,
    TransactionalId,
    TransactionalIdRegex,
    field,
    i32,
    i64,
)


class ListTransactionsRequest(Message):
    """The filters of the list; an empty filter lets everything through."""

    state_filters: list[str]
    producer_id_filters: list[ProducerId]
    duration_filter: i64 = field(since=1, default=-1)  # open for longer than this many ms
    # A regular expression (RE2/J) over transactional ids, not an id itself.
    transactional_id_pattern: TransactionalIdRegex | None = field(since=2, default=None)


class ListTransactionsResponse(Message):
    """The transactional ids that passed the filters."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    unknown_state_filters: list[str]  # filters that name no state the broker knows
    transaction_states: list[TransactionState]


class TransactionState(Message):
    """One transactional id, its producer and its state."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    transaction_state: str


def refuse(request: ListTransactionsRequest, code: ErrorCode) -> ListTransactionsResponse:
    """Give the code and list nothing."""
    return ListTransactionsResponse(
        error_code=code, unknown_state_filters=[], transaction_states=[]
    )


LIST_TRANSACTIONS = Api(
    key=66,
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
    versions=range(3),
    flexible=0,
    refuse=refuse,
)
