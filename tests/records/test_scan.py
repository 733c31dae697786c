"""The scan of stored batches: each policy with sound, cut, misplaced and damaged ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import pytest

from rookery.errors import Corrupt
from rookery.records import batches
from rookery.records.batches import BatchHeader
from rookery.records.crc import checksum
from rookery.records.expectation import FAR, Expectation, ExpectedExtent, OffsetRule
from rookery.records.policy import examine, rewrite, serve
from rookery.records.recordcodec import Record, build
from rookery.records.scan import BatchDamage, Scan, Scanner, corrupt, scan

AT = 1000
"""The position of the bytes in their object."""
EPOCHS = {0: 5, 3: 5, 5: 6, 6: 6, 10: 7}


def batch(base: int, count: int, *, epoch: int = 0, width: int = 0) -> bytes:
    rows = [Record(b"k", b"value %d" % at, (), 1000 + at) for at in range(count)]
    data = bytearray(build(rows))
    batches.stamp_into(data, base, epoch)
    header = batches.parse(data)
    if width:
        batches.restamp_into(data, header._replace(last_offset_delta=width - 1))
    return bytes(data)


def extents(offsets: list[int], *groups: list[bytes]) -> list[ExpectedExtent]:
    """Lay groups of batches one after the other; the offsets are those between them."""
    sizes = [sum(map(len, group)) for group in groups]
    positions = [AT, *accumulate(sizes, initial=AT)][1:]
    return [
        ExpectedExtent(offsets[at], offsets[at + 1], positions[at], size)
        for at, size in enumerate(sizes)
    ]


def expect(rows: list[ExpectedExtent], rule: OffsetRule) -> Expectation:
    is_exact = rule is not OffsetRule.SPARSE
    return Expectation(rows, rule, AT, rows[0].base_offset, is_exact)


def bases(scanned: Scan) -> list[int]:
    return [header.base_offset for header in scanned.headers]


class Subject(NamedTuple):
    """Some bytes, and what is known of them."""

    data: bytes
    expected: Expectation
    headers: list[BatchHeader]
    """What a scan of the sound bytes finds."""
    overwritten: range = range(0)
    """Bytes of each batch that mean nothing."""
    more: range = range(0)
    """… and more of them."""

    def is_harmless(self, at: int) -> bool:
        header = next(candidate for candidate in reversed(self.headers) if candidate.position <= at)
        byte = at - header.position
        return byte in self.overwritten or byte in self.more


def _subject(
    groups: list[list[bytes]],
    offsets: list[int],
    rule: OffsetRule,
    overwritten: tuple[range, range] = (range(0), range(0)),
    **options: object,
) -> Subject:
    rows = extents(offsets, *groups)
    expected = expect(rows, rule)._replace(**options)  # type: ignore[arg-type] # fields of it
    data = b"".join(part for group in groups for part in group)
    scanned = rewrite(data, expected)
    assert scanned.damage is None
    return Subject(data, expected, scanned.headers, *overwritten)


def _crcs(groups: list[list[bytes]]) -> list[int]:
    return [checksum(b"".join(group)) for group in groups]


SENT = [[batch(0, 3), batch(0, 2)], [batch(0, 1), batch(0, 4)]]
FINAL = [
    [batch(0, 3, epoch=5), batch(3, 2, epoch=5)],
    [batch(5, 1, epoch=6), batch(6, 4, epoch=6)],
    [batch(10, 1, epoch=7)],
]
GAPS = [[batch(2, 3), batch(7, 2, width=3)], [batch(12, 1), batch(13, 4, width=9)]]

SUBJECTS = {
    "as producers sent them": _subject(
        SENT, [0, 5, 10], OffsetRule.ASSIGNED, (range(8), range(12, 16))
    ),
    "merged": _subject(FINAL, [0, 5, 10, 11], OffsetRule.DENSE, epoch_at=EPOCHS.__getitem__),
    "blocks of a segment": _subject(
        GAPS, [2, 12, 25], OffsetRule.SPARSE,
        crcs=_crcs(GAPS), is_covered=True, is_atomic=True, is_exact=True,
    ),
    "blocks of a segment without checksums": _subject(
        FINAL, [0, 5, 10, 11], OffsetRule.DENSE, epoch_at=EPOCHS.__getitem__, is_atomic=True
    ),
}  # fmt: skip


def damage_of(scans: Iterator[Scan]) -> BatchDamage | None:
    return next((scanned.damage for scanned in scans if scanned.damage is not None), None)


def fed(data: bytes, expected: Expectation, step: int) -> tuple[list[int], BatchDamage | None]:
    """Scan bytes that come in pieces."""
    scanner, offsets = Scanner(expected), list[int]()
    for at in range(0, len(data), step):
        for part in scanner.feed(data[at : at + step]):
            offsets += bases(part)
            if part.damage is not None:
                return offsets, part.damage
    return offsets, None


@pytest.mark.parametrize("mask", [0x01, 0x10, 0x80, 0xFF])
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_flipped_byte_is_found_under_every_policy(name: str, mask: int) -> None:
    """All policies find the same damage, and what they return was written so."""
    subject = SUBJECTS[name]
    expected, clean = subject.expected, subject.headers
    for at in range(len(subject.data)):
        damaged = bytearray(subject.data)
        damaged[at] ^= mask

        rewritten = rewrite(damaged, expected)
        served = [serve(damaged, expected, header.base_offset) for header in clean]
        examined = list(examine(damaged, expected))

        damage = rewritten.damage
        assert damage is not None or subject.is_harmless(at), at
        assert damage_of(iter(examined)) == damage, at
        assert all(part.damage in {damage, None} for part in served if not part.headers), at
        for header, part in zip(clean, served, strict=True):
            assert part.headers or damage is not None, at
            assert not part.headers or part.headers[0].base_offset == header.base_offset, at
        for part in (rewritten, *served, *examined):
            for header in part.headers:
                same = next(item for item in clean if item.position == header.position)
                assert _facts(header) == _facts(same), at
                is_inside = header.position <= at < header.end
                assert not is_inside or subject.is_harmless(at), at
        if damage is not None:
            assert at - _reach(subject, damage) < expected.extents[0].size, at


def _facts(header: BatchHeader) -> tuple[int, ...]:
    """Return all fields except the epoch, which is rewritten where nothing checks it."""
    return (*header[:2], *header[3:])


def _reach(subject: Subject, damage: BatchDamage) -> int:
    return damage.position - AT


@pytest.mark.parametrize("step", [1, 7, 12, 61, 100, 10_000])
@pytest.mark.parametrize("at", [None, 9, 30, 100, 250])
def test_scan_in_pieces_equals_a_scan_of_the_whole(step: int, at: int | None) -> None:
    some = [batch(0, 3), batch(3, 2), batch(5, 1), batch(6, 4)]
    data = bytearray(b"".join(some))
    if at is not None:
        data[at] ^= 0x08
    expected = expect(extents([0, 10], some), OffsetRule.DENSE)
    whole = scan(data, expected)

    offsets, damage = fed(bytes(data), expected, step)

    assert offsets == bases(whole)
    assert (damage is None) == (whole.damage is None) == (at is None)
    if damage is not None and whole.damage is not None:
        assert damage[:3] == whole.damage[:3]


@pytest.mark.parametrize("rule", [OffsetRule.DENSE, OffsetRule.SPARSE, OffsetRule.UNCHECKED])
def test_truncated_batch_reports_the_bytes_it_needs(rule: OffsetRule) -> None:
    some = [batch(0, 3), batch(3, 2)]
    first, second = map(len, some)
    data = b"".join(some)
    expected = expect(extents([0, 5], some), rule)
    for size in range(1, len(data)):
        scanned = scan(data[:size], expected)

        is_whole = size >= first
        assert len(scanned.headers) == is_whole
        assert scanned.damage is None
        into = size - first if is_whole else size
        needed = (second if is_whole else first) if into >= 12 else 12
        assert scanned.needed == (needed if into else 0)


def test_truncated_extent_is_torn_at_its_end() -> None:
    some = [batch(0, 3), batch(3, 3), batch(10, 3)]
    size = len(some[0])
    log = b"".join(some)
    for end in range(1, len(log)):
        expected = expect([ExpectedExtent(0, FAR, AT, end)], OffsetRule.SPARSE)
        scanned = scan(log[:end], expected)

        whole = end // size
        assert len(scanned.headers) == whole
        assert scanned.end == whole * size
        if end % size:
            assert scanned.damage is not None
            assert scanned.damage.is_torn
            place = (scanned.damage.position, scanned.damage.offset)
            assert place == (AT + whole * size, [0, 3, 6][whole])
        else:
            assert scanned.damage is None


def test_length_beyond_the_extent_is_damage_before_it_is_read() -> None:
    data = bytearray(batch(0, 3))
    data[8] = 1
    expected = expect([ExpectedExtent(0, FAR, AT, 10_000)], OffsetRule.SPARSE)

    scanned = scan(data[:20], expected)

    assert scanned.damage is not None
    assert "10000 of 16777" in scanned.damage.reason


def test_missing_data_is_damage_for_rewrites_and_checks() -> None:
    some = [batch(0, 3), batch(3, 2)]
    expected = expect(extents([0, 5], some), OffsetRule.DENSE)

    for scanned in (rewrite(some[0], expected), *examine(some[0], expected)):
        assert bases(scanned) == [0]
        assert scanned.damage is not None
        assert f"ends {len(some[1])} bytes too soon" in scanned.damage.reason
    assert serve(some[0], expected, 0).damage is None


@pytest.mark.parametrize(
    ("rule", "some", "words"),
    [
        (OffsetRule.DENSE, [batch(0, 2), batch(3, 2)], "offset 3 where 2 comes next"),
        (OffsetRule.SPARSE, [batch(0, 2), batch(1, 2)], "offset 1 where 2 comes next"),
        (OffsetRule.SPARSE, [batch(4, 2)], "end at offset 6, the log says 5"),
        (OffsetRule.DENSE, [batch(0, 2), batch(2, 2)], "end at offset 4, the log says 5"),
        (OffsetRule.ASSIGNED, [batch(0, 2), batch(0, 2)], "end at offset 4, the log says 5"),
        (OffsetRule.ASSIGNED, [batch(0, 2), batch(0, 4)], "end at offset 6, the log says 5"),
    ],
)
def test_offsets_must_match_those_of_the_log(
    rule: OffsetRule, some: list[bytes], words: str
) -> None:
    scanned = rewrite(b"".join(some), expect(extents([0, 5], some), rule))

    assert scanned.damage is not None
    with pytest.raises(Corrupt, match=f"^a/b: byte 1.*{words}"):
        raise corrupt(scanned.damage, "a/b")


def test_wrong_counts_make_all_assigned_offsets_of_an_extent_uncertain() -> None:
    groups = [[batch(0, 2)], [batch(0, 2), batch(0, 2)], [batch(0, 1)]]
    expected = expect(extents([0, 2, 7, 8], *groups), OffsetRule.ASSIGNED)
    data = b"".join(part for group in groups for part in group)

    assert bases(serve(data, expected, 0)) == [0]
    assert serve(data, expected, 2).headers == []
    assert bases(serve(data, expected, 7)) == [7]
    assert [bases(scanned) for scanned in examine(data, expected)] == [[0], [7]]


def test_leader_epochs_must_match_those_of_the_log() -> None:
    some = [batch(0, 2, epoch=1), batch(2, 3, epoch=1)]
    expected = expect(extents([0, 5], some), OffsetRule.DENSE)
    wrong = expected._replace(epoch_at=lambda offset: 1 if offset < 2 else 4)

    scanned = scan(b"".join(some), wrong)

    assert bases(scanned) == [0]
    assert scanned.damage is not None
    assert "leader epoch 1, but was written in epoch 4" in scanned.damage.reason
    assert rewrite(b"".join(some), expected._replace(epoch_at=lambda _: 1)).damage is None


@pytest.mark.parametrize("rule", [OffsetRule.ASSIGNED, OffsetRule.DENSE])
def test_damage_in_an_unwanted_batch_does_not_hide_the_wanted_one(rule: OffsetRule) -> None:
    some = [batch(base, 2) for base in range(0, 10, 2)]
    expected = expect(extents([0, 10], some), rule)
    data = bytearray(b"".join(some))
    data[70] ^= 1
    data[len(some[0]) + 70] ^= 1

    assert [bases(serve(data, expected, offset))[:1] for offset in (1, 3, 4, 9)] == [
        [], [], [4], [8],
    ]  # fmt: skip
    # Without the end of the extent, no count before the wanted batch is certain.
    assert serve(data[:-1], expected, 4).headers == []
    # If the wanted batch was not read, more must be read to know.
    scanned = serve(data[: 3 * len(some[0])], expected, 9)
    assert (scanned.headers, scanned.damage) == ([], None)


def test_a_damaged_count_before_the_wanted_batch_does_not_shift_it() -> None:
    some = [batch(0, 10) for _ in range(4)]
    expected = expect(extents([0, 40], some), OffsetRule.ASSIGNED)
    data = bytearray(b"".join(some))
    data[26] ^= 2  # ten offsets become twelve

    scanned = serve(data, expected, 15)

    assert scanned.headers == []
    assert scanned.damage is not None
    assert "CRC" in scanned.damage.reason


def test_damage_in_a_sparse_extent_may_hide_the_wanted_batch() -> None:
    groups = [[batch(0, 2), batch(6, 2)], [batch(10, 2)]]
    expected = expect(extents([0, 10, 20], *groups), OffsetRule.SPARSE)
    data = bytearray(b"".join(part for group in groups for part in group))
    data[70] ^= 1

    assert serve(data, expected, 6).damage is not None
    assert serve(data, expected, 6).headers == []
    assert bases(serve(data, expected, 10)) == [10]


def test_an_offset_after_all_sparse_batches_is_a_gap() -> None:
    some = [batch(0, 2), batch(6, 2)]
    expected = expect(extents([0, 20], some), OffsetRule.SPARSE)

    scanned = serve(b"".join(some), expected, 12)

    assert (scanned.headers, scanned.damage, scanned.end) == ([], None, len(b"".join(some)))


def test_every_damage_is_examined() -> None:
    some = [batch(base, 2) for base in range(0, 10, 2)]
    data = bytearray(b"".join(some))
    for at in (0, 1, 3):
        data[at * len(some[0]) + 70] ^= 1

    scans = list(examine(data, expect(extents([0, 10], some), OffsetRule.DENSE)))

    assert [bases(scanned) for scanned in scans] == [[], [], [4], [8]]
    positions = [scanned.damage.position for scanned in scans if scanned.damage is not None]
    assert positions == [AT + at * len(some[0]) for at in (0, 1, 3)]


def test_examination_continues_at_the_next_known_start_after_an_unreadable_length() -> None:
    some = [batch(base, 2) for base in range(0, 10, 2)]
    expected = expect(extents([0, 10], some), OffsetRule.DENSE)
    data = bytearray(b"".join(some))
    data[len(some[0]) + 16] = 9
    starts = [AT + at * len(some[0]) for at in (0, 3)]

    alone = list(examine(data, expected))
    helped = list(examine(data, expected, starts))

    assert [bases(scanned) for scanned in alone] == [[0]]
    assert [bases(scanned) for scanned in helped] == [[0], [6, 8]]


def test_bytes_after_the_extents_are_ignored() -> None:
    some = [batch(0, 2)]
    scanned = scan(
        some[0] + b"of another partition", expect(extents([0, 2], some), OffsetRule.DENSE)
    )

    assert (bases(scanned), scanned.damage) == ([0], None)
    assert bytes(scanned.sound) == some[0]


def test_old_formats_and_unknown_codecs_are_named() -> None:
    data = bytearray(batch(0, 2))
    expected = expect([ExpectedExtent(0, 2, AT, len(data))], OffsetRule.DENSE)
    data[16] = 1
    old = scan(data, expected).damage
    data[16], data[22] = 2, 7
    unknown = scan(data, expected._replace(is_covered=True)).damage

    assert old is not None
    assert "Kafka 3.9" in old.reason
    assert unknown is not None
    assert "codec" in unknown.reason
