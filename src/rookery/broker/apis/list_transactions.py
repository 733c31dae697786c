"""ListTransactions: the transactional ids that this broker coordinates.

Clients ask every broker and merge the responses, so each broker returns the ids that hash to it.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.cluster.state import txns
from rookery.cluster.state.groups import coordinator_of
from rookery.cluster.state.txns import Transaction
from rookery.errors import ErrorCode
from rookery.service.namepattern import NamePattern
from rookery.wire.messages.list_transactions import (
    LIST_TRANSACTIONS,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

# Kafka's other states never persist here, but a filter for one of them is valid.
_KNOWN: Final = frozenset(state.words for state in txns.TransactionState) | {
    "PrepareCommit", "PrepareAbort", "Dead", "PrepareEpochFence",
}  # fmt: skip


@handles(
    LIST_TRANSACTIONS,
    mutates=False,
)
async def list_transactions(
    call: Call, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List the transactional ids of this broker that match all filters, as of the log's head."""
    await call.services.replica.barrier()
    matching = {
        transaction.id: transaction
        for transaction in call.state.transactions
        if _passes(call, request, transaction)
    }
    names = list(matching)
    if request.transactional_id_pattern:
        names = NamePattern(request.transactional_id_pattern).select(names)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[
            state_filter for state_filter in request.state_filters if state_filter not in _KNOWN
        ],
        transaction_states=[_state(matching[name]) for name in names],
    )


def _passes(call: Call, request: ListTransactionsRequest, transaction: Transaction) -> bool:
    brokers = call.state.brokers
    if coordinator_of(transaction.id, brokers.nodes) != call.services.node_id:
        return False
    if (
        request.producer_id_filters
        and transaction.writer.producer_id not in request.producer_id_filters
    ):
        return False
    # As in Kafka, the age counts from the start of the last transaction, even if that has ended.
    age_ms = call.services.clock.now_ms() - transaction.started_ms
    if request.duration_filter >= 0 and age_ms <= request.duration_filter:
        return False
    return not request.state_filters or transaction.state.words in request.state_filters


def _state(transaction: Transaction) -> TransactionState:
    return TransactionState(
        transactional_id=transaction.id,
        producer_id=transaction.writer.producer_id,
        transaction_state=transaction.state.words,
    )
