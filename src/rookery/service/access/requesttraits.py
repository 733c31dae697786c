"""Properties of requests on which it depends what their clients need.

The first line of each docstring is the condition in docs/acls.md.
"""

from __future__ import annotations

from typing import Final

from rookery.wire.message import Parts, Records
from rookery.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from rookery.wire.messages.describe_cluster import DescribeClusterRequest
from rookery.wire.messages.fetch import FetchRequest
from rookery.wire.messages.find_coordinator import FindCoordinatorRequest
from rookery.wire.messages.init_producer_id import InitProducerIdRequest
from rookery.wire.messages.metadata import MetadataRequest
from rookery.wire.messages.produce import ProduceRequest

_SHARE: Final = 2
# The low byte of a batch's attributes, and its bit for transactional batches.
_ATTRIBUTES: Final = 22
_TRANSACTIONAL: Final = 0x10


def names_owner(request: CreateDelegationTokenRequest) -> bool:
    """It names an owner."""
    return bool(request.owner_principal_name)


def asks_for_operations(request: DescribeClusterRequest | MetadataRequest) -> bool:
    """The request asks for authorized operations."""
    return request.include_cluster_authorized_operations


def is_replica(request: FetchRequest) -> bool:
    """The request has a replica id."""
    state = request.replica_state
    return (request.replica_id if state is None else state.replica_id) >= 0


def is_consumer(request: FetchRequest) -> bool:
    """The request has no replica id."""
    return not is_replica(request)


def is_for_shares(request: FindCoordinatorRequest) -> bool:
    """The keys are those of share partitions."""
    return request.key_type == _SHARE


def is_only_idempotent(request: InitProducerIdRequest) -> bool:
    """The request has no transactional id."""
    return request.transactional_id is None


def may_create(request: MetadataRequest) -> bool:
    """A topic does not exist, and topics may be created automatically."""
    return request.allow_auto_topic_creation


def is_transactional(request: ProduceRequest) -> bool:
    """A batch is transactional."""
    return any(
        _has_transaction(part.records)
        for topic in request.topic_data
        for part in topic.partition_data
    )


def _has_transaction(records: Records | None) -> bool:
    if records is None or isinstance(records, Parts) or len(records) <= _ATTRIBUTES:
        return False
    return bool(records[_ATTRIBUTES] & _TRANSACTIONAL)
