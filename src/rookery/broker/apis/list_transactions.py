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
from rookery.security.access import AclResource, Operation, listed
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
    touches=(listed(AclResource.TRANSACTIONAL_ID, Operation.DESCRIBE),),
)
async def list_transactions(
    call: Call, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List the transactional ids of this broker that match all filters, as of the log's head."""
    await call.services.replica.barrier()
    found = {one.id: one for one in call.state.transactions if _passes(call, request, one)}
    names = list(found)
    if request.transactional_id_pattern:
        names = NamePattern(request.transactional_id_pattern).matching(names)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[one for one in request.state_filters if one not in _KNOWN],
        transaction_states=[_state(found[name]) for name in names],
    )


def _passes(call: Call, request: ListTransactionsRequest, one: Transaction) -> bool:
    brokers = call.state.brokers
    if coordinator_of(one.id, brokers.nodes) != call.services.node_id:
        return False
    if request.producer_id_filters and one.writer.producer_id not in request.producer_id_filters:
        return False
    # As in Kafka, the age counts from the start of the last transaction, even if that has ended.
    age_ms = call.services.clock.now_ms() - one.started_ms
    if request.duration_filter >= 0 and age_ms <= request.duration_filter:
        return False
    return not request.state_filters or one.state.words in request.state_filters


def _state(one: Transaction) -> TransactionState:
    return TransactionState(
        transactional_id=one.id,
        producer_id=one.writer.producer_id,
        transaction_state=one.state.words,
    )
