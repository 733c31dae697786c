"""The partitions of a fetch session are followed from request to request."""

from __future__ import annotations

import pytest

from rookery.errors import ProtocolError
from rookery.proxy.edits.fetchscope import FetchScope, PartitionNames, check_scope
from rookery.wire.messages.fetch import FetchRequest, ForgottenTopic
from tests.proxy.edits.test_surplus import ID, OTHER_ID, fetch_request, fetch_response


def names(*partitions: tuple[str | bytes, int]) -> PartitionNames:
    return frozenset(partitions)


def forgetting(*partitions: int, epoch: int) -> FetchRequest:
    request: FetchRequest = fetch_request(epoch=epoch)
    request.topics = []
    request.forgotten_topics_data = [ForgottenTopic(topic_id=ID, partitions=list(partitions))]
    return request


def test_session_has_what_it_began_with_and_what_was_added() -> None:
    scope = FetchScope()
    scope.follow(fetch_request(0, 1))

    partitions = scope.follow(fetch_request(2, epoch=1))

    assert partitions == names((ID, 0), (ID, 1), (ID, 2))


def test_forgotten_partitions_leave_the_session() -> None:
    scope = FetchScope()
    before = scope.follow(fetch_request(0, 1))

    after = scope.follow(forgetting(1, epoch=1))

    # The response to the earlier request may still have both.
    assert before == names((ID, 0), (ID, 1))
    assert after == names((ID, 0))


def test_full_request_begins_another_session() -> None:
    scope = FetchScope()
    scope.follow(fetch_request(0))
    scope.follow(fetch_request(5, topic_id=OTHER_ID))

    assert scope.follow(fetch_request(epoch=1)) == names((OTHER_ID, 5))


@pytest.mark.parametrize("closes", [False, True])
def test_session_of_another_connection_is_not_known(*, closes: bool) -> None:
    scope = FetchScope()
    if closes:
        scope.follow(fetch_request(0))
        scope.follow(fetch_request(0, epoch=-1))

    assert scope.follow(fetch_request(0, epoch=1)) is None


def test_response_has_only_partitions_of_the_session() -> None:
    partitions = names((ID, 0), ("t", 1))
    check_scope(partitions, fetch_response(0))
    check_scope(partitions, fetch_response(1, topic="t", topic_id=bytes(16)))

    with pytest.raises(ProtocolError, match=f"partition 1 of {ID.hex()}"):
        check_scope(partitions, fetch_response(1))
