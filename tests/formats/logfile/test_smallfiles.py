"""Names, checkpoints, producers, properties, owner of a directory: both ways, and damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import Corrupt
from rookery.formats.logfile import checkpoints, identity, names, producers
from rookery.formats.logfile.checkpoints import LoggedEpoch
from rookery.formats.logfile.names import FileKind, FileName, FolderName, Stage
from rookery.formats.logfile.producers import ProducerEntry
from rookery.formats.logfile.properties import format_properties, parse_properties
from rookery.model.partition import TopicPartition


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("00000000000000000000.log", FileName(0, FileKind.LOG)),
        ("00000000000000000042.timeindex", FileName(42, FileKind.TIMES)),
        ("00000000000000000042.index.deleted", FileName(42, FileKind.INDEX, Stage.DELETED)),
        ("00000000000000000042.log.swap", FileName(42, FileKind.LOG, Stage.SWAP)),
        ("00000000000000000042.txnindex.cleaned", FileName(42, FileKind.ABORTED, Stage.CLEANED)),
        ("09223372036854775807.snapshot", FileName((1 << 63) - 1, FileKind.PRODUCERS)),
    ],
)
def test_file_names_are_parsed(text: str, parsed: FileName) -> None:
    assert names.parse_file_name(text) == parsed
    assert parsed.text == text


@pytest.mark.parametrize(
    "text", ["0.log", "0000000000000000000x.log", "99999999999999999999.log",
             "00000000000000000000.checkpoint", "partition.metadata"]
)  # fmt: skip
def test_other_file_names_are_ignored(text: str) -> None:
    assert names.parse_file_name(text) is None


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a-0", FolderName(TopicPartition("a", 0))),
        ("with-dashes-1.2_x-17", FolderName(TopicPartition("with-dashes-1.2_x", 17))),
        (
            "gone-0.ae6a8e32a41e4e6bbbae86cdbf7715af-delete",
            FolderName(TopicPartition("gone", 0), Stage.DELETE, "ae6a8e32a41e4e6bbbae86cdbf7715af"),
        ),
        ("a-0.1f-future", FolderName(TopicPartition("a", 0), Stage.FUTURE, "1f")),
        ("a-0.1f-stray", FolderName(TopicPartition("a", 0), Stage.STRAY, "1f")),
    ],
)
def test_folder_names_are_parsed(text: str, parsed: FolderName) -> None:
    assert names.parse_folder_name(text) == parsed
    assert parsed.text == text


@pytest.mark.parametrize("text", ["a", "a-", "a-x", "a-99999999999", "-0", "a b-0", "a-0.1f-other"])
def test_other_folder_names_are_ignored(text: str) -> None:
    assert names.parse_folder_name(text) is None


def test_offset_checkpoints_are_read_and_written() -> None:
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b.c_d-e", 12): 1 << 62}
    text = checkpoints.format_offsets(offsets)
    assert text == f"0\n2\na 0 5\nb.c_d-e 12 {1 << 62}\n"
    assert checkpoints.parse_offsets(text, "x") == offsets
    assert checkpoints.parse_offsets("0\n0\n", "x") == {}
    # Kafka makes the file at its first start, and writes it later.
    assert checkpoints.parse_offsets("", "x") == {}


@pytest.mark.parametrize(
    "text", ["1\n0\n", "0", "0\n2\na 0 5\n", "0\n1\na 0\n", "0\n1\na 0 -5\n", "0\n0\nmore\n"]
)
def test_damaged_checkpoints_are_named(text: str) -> None:
    with pytest.raises(Corrupt, match=r"^some/file: "):
        checkpoints.parse_offsets(text, "some/file")


def test_leader_epoch_checkpoints_are_read_and_written() -> None:
    epochs = [LoggedEpoch(0, 0), LoggedEpoch(2, 10), LoggedEpoch(5, 30)]
    assert checkpoints.parse_epochs(checkpoints.format_epochs(epochs), "x") == epochs
    assert [checkpoints.epoch_at(epochs, at) for at in (0, 9, 10, 31)] == [0, 0, 2, 5]
    assert checkpoints.epoch_at([], 0) == -1
    assert checkpoints.epoch_end(epochs, 1, 50) == LoggedEpoch(0, 10)
    assert checkpoints.epoch_end(epochs, 2, 50) == LoggedEpoch(2, 30)
    assert checkpoints.epoch_end(epochs, 9, 50) == LoggedEpoch(5, 50)
    assert checkpoints.epoch_end(epochs[1:], 1, 50) is None


def test_later_of_two_contradicting_epochs_applies() -> None:
    assert checkpoints.parse_epochs("0\n3\n0 0\n3 20\n1 10\n", "x") == [
        LoggedEpoch(0, 0),
        LoggedEpoch(1, 10),
    ]


ENTRY = ProducerEntry(1, 0, 5, 7, 1, 0x1A1E1B231A0, 0, -1)


def test_producers_are_written_as_kafka_writes_them() -> None:
    # What Kafka 4.3 left after three transactions of one producer.
    data = bytes.fromhex(
        "0001f384bcf9000000010000000000000001000000000005000000000000000700000001000001a1e1b231a0"
        "00000000ffffffffffffffff"
    )
    assert producers.parse_producers(data) == [ENTRY]
    assert producers.pack_producers([ENTRY]) == data


def test_damaged_producers_are_named() -> None:
    data = producers.pack_producers([ENTRY])
    for size in range(len(data)):
        with pytest.raises(Corrupt, match=r"^x: "):
            producers.parse_producers(data[:size], "x")
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1
        with pytest.raises(Corrupt, match=r"^x: "):
            producers.parse_producers(flipped, "x")


def test_properties_are_parsed() -> None:
    text = (
        "# comment\n! too\n\n key = value \nlisteners=PLAINTEXT://:9092,\\\n   CONTROLLER://:9093\n"
        "colon: x\nblank y z\nescaped\\ key=\\u00e4\\t\\\\\nempty\n"
    )
    assert parse_properties(text) == {
        "key": "value ",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "colon": "x",
        "blank": "y z",
        "escaped key": "ä\t\\",
        "empty": "",
    }
    with pytest.raises(Corrupt, match=r"^x: a \\u needs"):
        parse_properties("a=\\u12", "x")


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=12), max_size=4))
def test_properties_survive_a_round_trip(values: dict[str, str]) -> None:
    clean = {
        key: value
        for key, value in values.items()
        if not any(0xD800 <= ord(character) < 0xE000 for character in key + value)
    }
    assert parse_properties(format_properties(clean, "made by hand")) == clean


def test_meta_properties_are_read_and_written() -> None:
    meta = identity.MetaProperties("ABZFBjgturVXtmgFd88tUw", 7, bytes(range(16)))
    assert identity.parse_meta(identity.format_meta(meta), "x") == meta
    old = identity.parse_meta("broker.id=3\nversion=0\ncluster.id=c\n", "x")
    assert old == identity.MetaProperties("c", 3)
    for text in ("", "node.id=1\nversion=1\n", "node.id=x\ncluster.id=c", "version=9\nnode.id=1"):
        with pytest.raises(Corrupt, match=r"^x: "):
            identity.parse_meta(text, "x")


def test_partition_metadata_is_read_in_several_forms() -> None:
    topic_id = b"\xfb\xef\xbe" * 5 + b"\0"
    text = identity.format_partition_metadata(topic_id)
    assert identity.parse_partition_metadata(text, "x") == topic_id
    padded = "version: 0\ntopic_id: ++++++++++++++++++++AA==\n"
    assert identity.parse_partition_metadata(padded, "x") == topic_id
    for wrong in ("", "version: 1\ntopic_id: A", "version: 0\ntopic_id: zzz"):
        with pytest.raises(Corrupt, match=r"^x: "):
            identity.parse_partition_metadata(wrong, "x")


def test_clean_shutdown_file_is_read_and_written() -> None:
    assert identity.parse_clean_shutdown(identity.format_clean_shutdown(96)) == 96
    assert identity.parse_clean_shutdown("") is None
    assert identity.parse_clean_shutdown("[]") is None
