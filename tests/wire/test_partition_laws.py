"""Requests cut in two and their answers joined: the same laws for every API and version."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from zlib import crc32

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rookery.errors import ErrorCode
from rookery.testing.messages import random_message
from rookery.wire.catalog import apis
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.items import Items, Level, levels
from rookery.wire.message import Api, Message
from rookery.wire.partition import Halves, asks_for_all, cut, join
from rookery.wire.table import shape_of

SERVED, REFUSED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED
APIS: Final = [api for api in apis().values() if api.items]
EVERY_VERSION: Final = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in APIS
    for version in api.versions
]
SEEDS: Final = st.integers(min_value=0, max_value=2**32)

# Lists with marked fields that no request is cut by, and why.
WHOLE: Final = {
    "SyncGroup.assignments": "one generation of a group; the coordinator takes it as a whole",
    "ListTransactions.producer_id_filters": "a filter, not a list of what to answer about",
    "CreateDelegationToken.renewers": "the principals that may renew the one token",
    "DescribeClientQuotas.components": "the parts of one filter",
    "ConsumerGroupHeartbeat.subscribed_topic_names": "one member's subscription",
    "ConsumerGroupHeartbeat.topic_partitions": "what one member owns",
    "ShareGroupHeartbeat.subscribed_topic_names": "one member's subscription",
    "StreamsGroupHeartbeat.active_tasks": "what one member runs",
    "StreamsGroupHeartbeat.standby_tasks": "what one member runs",
    "StreamsGroupHeartbeat.warmup_tasks": "what one member runs",
    "StreamsGroupHeartbeat.task_offsets": "what one member runs",
    "StreamsGroupHeartbeat.task_end_offsets": "what one member runs",
    "Vote.topics": "the metadata log, between controllers",
    "BeginQuorumEpoch.topics": "the metadata log, between controllers",
    "BeginQuorumEpoch.leader_endpoints": "the addresses of one controller",
    "EndQuorumEpoch.topics": "the metadata log, between controllers",
    "EndQuorumEpoch.leader_endpoints": "the addresses of one controller",
    "FetchSnapshot.topics": "the metadata log, between controllers",
    "DescribeQuorum.topics": "the metadata log is the only topic that has a quorum",
    "AlterPartition.topics": "from one broker to the controller, which answers as a whole",
    "AssignReplicasToDirs.directories": "from one broker to the controller",
    "BrokerRegistration.listeners": "the addresses of one broker",
    "ControllerRegistration.listeners": "the addresses of one controller",
    "AddRaftVoter.listeners": "the addresses of one controller",
    "UpdateRaftVoter.listeners": "the addresses of one controller",
}


def live(api: Api[Any, Any], version: int) -> list[Items]:
    """The lists that a version has."""
    fields = api.request.__fields__
    return [items for items in api.items if fields[levels(items.asked)[0].name].is_in(version)]


def leaves(message: Message, steps: Sequence[Level]) -> Iterator[tuple[Any, ...]]:
    """Yield every item of a list, with the elements around it."""
    for element in getattr(message, steps[0].name) or []:
        if len(steps) == 1:
            yield (element,)
        else:
            for inner in leaves(element, steps[1:]):
                yield element, *inner


def path_key(chain: Sequence[Any], steps: Sequence[Level], depth: int) -> tuple[Any, ...]:
    """What tells an item apart, as far out as request and answer agree on it."""
    pairs = list(zip(chain, steps, strict=True))[-depth:]
    # An empty name in a plain list means no name in an answer that may have an id instead.
    return tuple(
        tuple(key for key in level.keys_of(element) if key[1] != "") for element, level in pairs
    )


def depth_of(items: Items) -> int:
    asked = levels(items.asked)
    return min(len(asked), len(levels(items.answered or items.asked)))


def name_all(message: Message, steps: Sequence[Level]) -> None:
    """Replace every null list on a path by an empty one."""
    if getattr(message, steps[0].name) is None:
        setattr(message, steps[0].name, [])
    if len(steps) > 1:
        for element in getattr(message, steps[0].name):
            name_all(element, steps[1:])


def random_request(api: Api[Any, Any], version: int, seed: int) -> Any:
    """A request that names what it is about, or None if it still asks for everything."""
    request = random_message(api.request, version, seed)
    for items in live(api, version):
        if asks_for_all(api, version, request):
            with pytest.raises(ValueError, match="asks for everything"):
                cut(api, version, request, lambda *_: True)
        name_all(request, levels(items.asked))
    return None if asks_for_all(api, version, request) else request


class Coin:
    """A predicate that decides by what an item is called, so that equal items go the same way."""

    def __init__(self, api: Api[Any, Any], version: int, seed: int) -> None:
        self._seed = seed
        self._steps = {
            len(levels(items.asked)): (levels(items.asked), depth_of(items))
            for items in live(api, version)
        }

    def __call__(self, *chain: Any) -> bool:
        steps, depth = self._steps[len(chain)]
        text = repr((self._seed, path_key(chain, steps, depth)))
        return crc32(text.encode()) % 2 == 0


def codes(answer: Message, items: Items) -> list[tuple[tuple[object, ...], ErrorCode]]:
    steps, depth = levels(items.answered or ""), depth_of(items)
    return [
        (path_key(chain, steps, depth) if steps[0].keys else (), code_in(chain[-1]))
        for chain in leaves(answer, steps)
    ]


def code_in(item: Message) -> ErrorCode:
    return next(v for n in item.__fields__ if isinstance(v := getattr(item, n), ErrorCode))


def expected_codes(
    request: Message, items: Items, keep: Callable[..., bool]
) -> list[tuple[tuple[object, ...], ErrorCode]]:
    steps, depth = levels(items.asked), depth_of(items)
    is_keyed = bool(levels(items.answered or "")[0].keys)
    return [
        (
            path_key(chain, steps, depth) if is_keyed else (),
            SERVED if keep(*chain) else REFUSED,
        )
        for chain in leaves(request, steps)
    ]


def is_distinct(owners: Sequence[Message], steps: Sequence[Level], depth: int) -> bool:
    """Whether nothing that the answer names is named twice, so that there is one right order.

    An answer has the innermost `depth` lists only: a topic in two folders has one place in it.
    """
    elements = [element for owner in owners for element in getattr(owner, steps[0].name) or []]
    if len(steps) > depth:
        return is_distinct(elements, steps[1:], depth)
    keys = [path_key([element], steps[:1], 1)[0] for element in elements]
    # Elements that share a name or an id are one element to a merge, though other keys differ.
    each = [key for path in keys for key in path]
    if len(set(each)) < len(each) or not all(keys):
        return False
    return len(steps) == 1 or all(is_distinct([element], steps[1:], depth) for element in elements)


def sent(answer: Any, version: int) -> Any:
    """The answer as a client of that version reads it."""
    return decode(type(answer), version, encode_bytes(answer, version))


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_halves_add_up_to_the_request(api: Api[Any, Any], version: int, seed: int) -> None:
    if not live(api, version):
        return
    request = random_request(api, version, seed)
    if request is None:
        return
    keep, before = Coin(api, version, seed), copy.deepcopy(request)
    halves = cut(api, version, request, keep)
    assert request == before
    for items in live(api, version):
        steps = levels(items.asked)
        named = [path_key(chain, steps, len(steps)) for chain in leaves(request, steps)]
        wanted = [keep(*chain) for chain in leaves(request, steps)]
        for half, side in ((halves.kept, True), (halves.denied, False)):
            chains = [] if half is None else list(leaves(half, steps))
            keys = [path_key(chain, steps, len(steps)) for chain in chains]
            assert keys == [
                key for key, is_kept in zip(named, wanted, strict=True) if is_kept is side
            ]
            assert half is None or encode_bytes(half, version)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_cut_that_keeps_or_denies_everything_is_consistent(
    api: Api[Any, Any], version: int, seed: int
) -> None:
    request = random_request(api, version, seed) if live(api, version) else None
    if request is None:
        return
    halves: Halves[Any, Any] = cut(api, version, request, lambda *_: True)
    assert halves.kept is request
    assert halves.denied is None
    halves = cut(api, version, request, lambda *_: False)
    whole, kept = halves.request, halves.kept
    for items in live(api, version):
        steps = levels(items.asked)
        assert halves.denied is not None or not list(leaves(whole, steps))
        assert kept is None or not list(leaves(kept, steps))


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
@example(seed=13165)  # AlterReplicaLogDirs: one topic in two folders
@example(seed=64)  # Metadata: one name with two ids
def test_every_item_gets_one_answer(api: Api[Any, Any], version: int, seed: int) -> None:
    request = random_request(api, version, seed) if live(api, version) else None
    if request is None:
        return
    keep = Coin(api, version, seed)
    halves: Halves[Any, Any] = cut(api, version, request, keep)
    first = halves.kept and api.refuse_items(halves.kept, SERVED)
    second = halves.denied and api.refuse_items(halves.denied, REFUSED)
    answer = sent(join(halves, first, second), version)
    assert getattr(answer, "error_code", ErrorCode.NONE) is ErrorCode.NONE
    asked = [items for items in live(api, version) if items.answered and items.has_codes]
    for answered in {items.answered for items in asked}:
        answers = codes(answer, next(items for items in asked if items.answered == answered))
        group = [items for items in asked if items.answered == answered]
        wanted = [pair for items in group for pair in expected_codes(request, items, keep)]
        if api.name == "AlterUserScramCredentials":  # one answer for a user, however often named
            wanted = list(dict.fromkeys(wanted))
        assert Counter(answers) == Counter(wanted)
        is_positional = not levels(answered or "")[0].keys
        steps, depth = levels(group[0].asked), depth_of(group[0])
        if is_positional or (len(group) == 1 and is_distinct([request], steps, depth)):
            assert answers == wanted


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_answer_survives_a_refusal_of_the_other_half(
    api: Api[Any, Any], version: int, seed: int
) -> None:
    """What the other half's answer says of its items is in the joined one, whatever it is."""
    request = random_request(api, version, seed) if live(api, version) else None
    if request is None:
        return
    halves: Halves[Any, Any] = cut(api, version, request, Coin(api, version, seed))
    if halves.kept is None or halves.denied is None:
        return
    first = random_message(api.response, version, seed)
    second = api.refuse_items(halves.denied, REFUSED)
    for items in live(api, version):
        if items.answered is None or not levels(items.answered)[0].keys:
            continue
        joined = leaves(join(halves, first, second), levels(items.answered))
        left = Counter(repr(chain[-1]) for chain in joined)
        left.subtract(repr(c[-1]) for c in leaves(first, levels(items.answered)))
        left.subtract(repr(c[-1]) for c in leaves(second, levels(items.answered)))
        assert not any(left.values())


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_paths_name_lists_and_their_fields(api: Api[Any, Any]) -> None:
    for items in api.items:
        check_path(api.request, items.asked)
        if items.answered is not None:
            check_path(api.response, items.answered)


def check_path(cls: type[Message], path: str) -> None:
    for level in levels(path):
        shape = shape_of(cls, cls.__fields__[level.name])
        assert shape.is_array, (cls, level)
        if shape.message is None:
            assert level is levels(path)[-1]
            assert not level.keys
            return
        assert set(level.keys) <= set(shape.message.__fields__), (cls, level)
        cls = shape.message


def marked_lists() -> Iterator[tuple[Api[Any, Any], str]]:
    """Yield the outermost lists of every request that hold marked fields."""
    for api in apis().values():
        request: type[Message] = api.request
        for name, entry in request.__fields__.items():
            shape = shape_of(request, entry)
            if shape.is_array and (shape.kinds or (shape.message and has_marks(shape.message))):
                yield api, name


def has_marks(cls: type[Message]) -> bool:
    shapes = [shape_of(cls, entry) for entry in cls.__fields__.values()]
    return any(shape.kinds or (shape.message and has_marks(shape.message)) for shape in shapes)


def test_every_list_of_names_can_be_cut_or_is_excused() -> None:
    declared = {f"{api.name}.{levels(items.asked)[0].name}" for api in APIS for items in api.items}
    marked = {f"{api.name}.{name}" for api, name in marked_lists()}
    assert marked - declared == set(WHOLE)
