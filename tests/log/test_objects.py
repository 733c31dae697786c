"""Objects by id: their locations, and errors if they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.cluster.state.objects import SegmentName
from rookery.cluster.state.state import State
from rookery.errors import Conflict, Corrupt, Unavailable
from rookery.formats.journal import journal_header
from rookery.formats.keys import STORED, journal_name, object_id, object_key
from rookery.log.read import objects
from rookery.log.read.files import JournalFiles, MissingObject
from rookery.log.read.objects import Places, RemovedObject, key_of, keys_of
from rookery.store.backends.memory import MemoryStore
from rookery.store.wrappers import NamespacedStore

JOURNAL, SHARED, PLAIN, OTHER = (
    object_id(5, 1),
    object_id(5, STORED),
    object_id(5, STORED + 1),
    object_id(6, STORED + 2),
)


def state() -> State:
    made = State()
    made.objects.stage(PLAIN, SegmentName("birds", 2, 40, is_plain=True))
    made.objects.stage(OTHER, SegmentName(".hidden", 0, 41, is_plain=False))
    return made


def test_every_kind_of_object_has_its_key() -> None:
    by_id = {identity: keys_of(state(), "ns", identity) for identity in (SHARED, PLAIN, OTHER)}
    name = f"ns/=hidden/0/segment-{41:020}-6-{STORED + 2}"
    assert by_id == {
        SHARED: [f"_rookery/objects/{5:016x}/{STORED:06x}"],
        PLAIN: [f"ns/birds/2/segment-{40:020}{end}" for end in (".kfs", ".index", ".times")],
        OTHER: [name + end for end in (".kfs", ".index", ".times")],
    }
    for identity, keys in by_id.items():
        assert key_of(state(), "ns", identity) == keys[0]


async def test_each_object_is_read_from_its_location(tmp_path: Path) -> None:
    head = journal_header(JOURNAL)
    (tmp_path / journal_name(JOURNAL)).write_bytes(head + b"from a journal")
    store = MemoryStore({})
    await store.create(object_key(SHARED), [b"from a shared object"])
    await store.create(key_of(state(), "ns", PLAIN), [b"from a segment"])
    files = JournalFiles(tmp_path)
    places = Places(files, store, state, "ns")
    assert await places.read(JOURNAL, len(head) + 5, 100) == b"a journal"
    assert await places.read(SHARED, 5, 8) == b"a shared"
    assert await places.read(PLAIN, 5, 100) == b"a segment"
    assert await places.read(PLAIN, 14, 10) == await places.read(PLAIN, 900, 10) == b""
    for identity in (JOURNAL, OTHER):
        with pytest.raises(MissingObject) as caught:
            await places.read(identity + 1, 0, 1)
        assert isinstance(caught.value, Conflict)
        assert caught.value.object_id == identity + 1
    await files.close()


async def test_missing_object_is_named_and_counted() -> None:
    places = Places(None, MemoryStore({}), state, "ns")
    before = objects._MISSING.value
    with pytest.raises(
        RemovedObject, match=rf"no object 'ns/birds/2/segment-{40:020}\.kfs'.*rookery fsck"
    ):
        await places.read(PLAIN, 0, 10)
    assert objects._MISSING.value == before + 1
    with pytest.raises(RemovedObject):
        await places.beside(PLAIN, "ns/a.times")
    assert objects._MISSING.value == before + 1, "reads go on without the files beside"


async def test_missing_object_is_named_as_in_the_bucket() -> None:
    places = Places(None, NamespacedStore(MemoryStore({}), "ns"), state, "ns")
    with pytest.raises(
        RemovedObject, match=f"'_rookery/ns/objects/{5:016x}/{STORED:06x}'"
    ) as caught:
        await places.read(SHARED, 0, 10)
    assert caught.value.key == object_key(SHARED)


async def test_companion_file_is_read_whole_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "_BESIDE_BYTES", 10)
    places = Places(None, MemoryStore({"a.times": bytes(10), "b.times": bytes(11)}), state, "ns")
    assert await places.beside(PLAIN, "a.times") == bytes(10)
    with pytest.raises(Corrupt, match=r"b\.times: is longer than 10 bytes"):
        await places.beside(PLAIN, "b.times")


async def test_location_unreachable_for_this_process_is_reported() -> None:
    places = Places(None, None, state, "ns")
    with pytest.raises(Unavailable, match=r"journal-.* has no journal folder"):
        await places.read(JOURNAL, 0, 1)
    with pytest.raises(Unavailable, match=r"birds.* is in a store"):
        await places.read(PLAIN, 0, 1)


@pytest.mark.parametrize(("position", "size"), [(-1, 4), (0, -1)])
async def test_invalid_ranges_are_refused(position: int, size: int) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        await Places(None, MemoryStore({}), state, "ns").read(SHARED, position, size)


def test_objects_have_readable_names() -> None:
    places = Places(None, None, state, "ns")
    assert places.name(JOURNAL) == f"journal file {journal_name(JOURNAL)}"
    assert places.name(SHARED) == f"object _rookery/ns/objects/{5:016x}/{STORED:06x}"
    assert places.name(PLAIN) == f"object ns/birds/2/segment-{40:020}.kfs"
