"""`rookery segment dump`: the contents of segment files, sound or damaged."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rookery.cli.main import main
from rookery.formats.segmentwriter import SegmentWriter
from rookery.records import recordcodec
from rookery.records.compression import CODECS
from rookery.store.open import open_store
from tests.formats import byhand, golden

NAME = "segment-00000000000000001000"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition's folder with the golden files."""
    folder = tmp_path / "default" / "birds" / "2"
    folder.mkdir(parents=True)
    (folder / f"{NAME}.kfs").write_bytes(golden.SEGMENT)
    (folder / f"{NAME}.index").write_bytes(golden.INDEX)
    (folder / f"{NAME}.times").write_bytes(golden.TIMES)
    return folder


def _damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x01
    path.write_bytes(data)


def _json(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> Any:
    assert main(["segment", "dump", *args, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_readable_dump_shows_header_batches_and_verdict(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["segment", "dump", str(folder / f"{NAME}.kfs")]) == 0

    out = capsys.readouterr().out
    assert f"{NAME}.kfs: default, birds-2\n" in out
    assert "base offset 1000, 6 records, created 2026-01-01T00:00:00.000+00:00" in out
    assert "last offset 1012" in out
    assert "2 entries, the next after 3 messages" in out
    assert "object 9 of incarnation 7" in out
    assert "producer 77, offsets 990-1003" in out
    assert "epoch    4 from offset 1008" in out
    assert out.count("CRC ok") == 3
    assert "1009-1010  1 record  71 bytes" in out
    assert out.endswith("\nsound\n")


def test_json_dump_shows_every_field(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = _json(capsys, str(folder / f"{NAME}.kfs"), "--records")

    assert row["header"] == {
        "base_offset": 1000,
        "message_count": 6,
        "created_ms": 1_767_225_600_000,
    }
    assert row["footer"]["last_offset"] == 1012
    assert row["index"]["entries"][0] == {"offset": 1000, "position": 32}
    assert (row["times"]["topic"], row["times"]["partition"]) == ("birds", 2)
    assert row["times"]["blocks"][0]["max_timestamp"] == 6002
    assert [batch["last_offset"] for batch in row["batches"]] == [1001, 1004, 1010]
    values = [record["value"] for batch in row["batches"] for record in batch["records"]]
    assert values == ["jackdaw", "rook", "crow", "raven", "magpie", "jay"]
    assert row["damage"] == []


def test_segment_without_a_times_file_is_dumped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.kfs").write_bytes(golden.DENSE)
    (tmp_path / "a.index").write_bytes(golden.DENSE_INDEX)

    row = _json(capsys, str(tmp_path / "a.kfs"))
    assert (row["times"], row["damage"]) == (None, [])
    assert row["index"]["interval"] == 100
    assert main(["segment", "dump", str(tmp_path / "a.kfs")]) == 0
    assert "no .times" in capsys.readouterr().out


@pytest.mark.parametrize("ending", ["index", "times"])
def test_index_or_times_file_can_be_dumped_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    for path in folder.iterdir():
        if path.suffix != f".{ending}":
            path.unlink()

    row = _json(capsys, str(folder / f"{NAME}.{ending}"))

    assert row[ending] is not None
    assert (row["header"], row["batches"]) == (None, [])


def test_damage_is_named_with_its_position(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = golden.POSITIONS[1]
    _damage(folder / f"{NAME}.kfs", second + 65)

    row = _json(capsys, str(folder / f"{NAME}.kfs"), "--records", code=1)

    damage = [(Path(fault["file"]).suffix, fault["position"]) for fault in row["damage"]]
    assert (".kfs", second) in damage
    assert (".kfs", 32) in damage, "the block that holds it"
    assert (".kfs", len(golden.SEGMENT) - 16) in damage, "the CRC over all batches"
    assert [batch["crc_ok"] for batch in row["batches"]] == [True, False, True]
    assert row["batches"][1]["records"] is None
    assert main(["segment", "dump", "--records", str(folder / f"{NAME}.kfs")]) == 1
    out = capsys.readouterr().out
    assert "CRC WRONG" in out
    assert "its records cannot be read" in out
    assert f"byte {second}: the batch at offset 1002: its CRC-32C does not match" in out
    assert out.endswith("\ndamaged\n")


def test_batches_after_a_damaged_one_are_found_by_the_block_index(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _damage(folder / f"{NAME}.kfs", 32 + 16)

    row = _json(capsys, str(folder / f"{NAME}.kfs"), code=1)

    assert [batch["base_offset"] for batch in row["batches"]] == [1009]
    assert "no batch can be read here" in row["damage"][0]["what"]


@pytest.mark.parametrize("ending", ["kfs", "index", "times"])
@pytest.mark.parametrize("size", [0, 10, 30])
def test_truncated_file_is_reported_as_damage(
    folder: Path, capsys: pytest.CaptureFixture[str], ending: str, size: int
) -> None:
    path = folder / f"{NAME}.{ending}"
    path.write_bytes(path.read_bytes()[:size])

    row = _json(capsys, str(folder / f"{NAME}.kfs"), code=1)

    assert str(path) in {fault["file"] for fault in row["damage"]}


def test_compressed_transactional_batch_is_dumped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zstd = next(codec for codec in CODECS.values() if codec.name == "zstd")
    settings = recordcodec.BatchSettings(
        codec=zstd,
        base_offset=3,
        producer_id=9,
        producer_epoch=1,
        base_sequence=4,
        is_transactional=True,
    )
    writer = SegmentWriter(3)
    writer.add(recordcodec.build([recordcodec.Record(b"k", b"\xff", (), 10)], settings))
    files = writer.finish(golden.ORIGIN, 3, 1)
    (tmp_path / "a.kfs").write_bytes(b"".join(files.parts))

    (batch,) = _json(capsys, str(tmp_path / "a.kfs"), "--records")["batches"]
    assert (batch["codec"], batch["is_transactional"], batch["producer_id"]) == ("zstd", True, 9)
    assert batch["records"] == [
        {"offset": 3, "timestamp": 10, "key": "k", "value_base64": "/w==", "headers": []}
    ]
    assert main(["segment", "dump", str(tmp_path / "a.kfs")]) == 0
    assert "zstd  transactional  producer 9 epoch 1 sequence 4" in capsys.readouterr().out


async def _fill(url: str, key: str) -> None:
    store = open_store(url)
    await store.create(f"{key}.kfs", [golden.SEGMENT])
    await store.create(f"{key}.times", [golden.TIMES])
    await store.close()


def test_segment_in_a_store_is_dumped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, key = f"file://{tmp_path}", f"default/birds/2/{NAME}"
    asyncio.run(_fill(url, key))

    row = _json(capsys, f"{key}.kfs", "--store", url)

    assert len(row["batches"]) == 3
    assert (row["index"], row["damage"]) == (None, [])
    assert row["times"]["topic"] == "birds"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("nowhere.kfs",), "nowhere.kfs: there is no such file"),
        (("notes.txt",), "their names end in .kfs, .index, .times"),
        (("../x.kfs", "--store", "memory:dump"), "object key"),
        (("x.kfs", "--store", "memory:dump"), "there is no such object"),
        (("x.kfs", "--store", "no-such:store"), "neither a folder nor a URL"),
    ],
)
def test_invalid_arguments_are_reported(
    args: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["segment", "dump", *args]) == 2
    assert words in capsys.readouterr().err


def test_folder_instead_of_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.kfs").mkdir()

    assert main(["segment", "dump", str(tmp_path / "a.kfs")]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_batch_with_an_unknown_codec_is_reported_as_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = bytearray(byhand.batch(0, [b"x"], 1))
    batch[22] = 7
    batch[17:21] = byhand.crc32c(batch[21:]).to_bytes(4, "big")
    (tmp_path / "a.kfs").write_bytes(byhand.segment(0, 0, 1, 1, [bytes(batch)]))

    dumped = _json(capsys, str(tmp_path / "a.kfs"), "--records", code=1)

    (row,) = dumped["batches"]
    assert (row["codec"], row["crc_ok"], row["records"]) == ("unknown", True, None)
    assert [(fault["position"], fault["what"]) for fault in dumped["damage"]] == [
        (32, "the batch at offset 0: its codec is unknown to Kafka")
    ]
