"""The header of journal files."""

from __future__ import annotations

import pytest

from rookery.errors import Corrupt
from rookery.formats.journal import HEADER_BYTES, check_journal_header, journal_header
from rookery.formats.keys import object_id

IDENTITY = object_id(7, 3)


def test_header_has_fixed_bytes() -> None:
    header = journal_header(IDENTITY)
    assert len(header) == HEADER_BYTES == 32
    assert header[:28].hex() == "524b4a4f55524e4c" + "00010000" + "00000003" + f"{7:016x}" + "0" * 8


def test_file_with_a_valid_header_is_accepted() -> None:
    check_journal_header(IDENTITY, journal_header(IDENTITY) + b"batches")


@pytest.mark.parametrize("at", range(HEADER_BYTES))
def test_every_flipped_byte_of_the_header_is_refused(at: int) -> None:
    header = bytearray(journal_header(IDENTITY))
    header[at] ^= 0x10
    with pytest.raises(Corrupt, match=r"journal-0000000000000007-00000003\.log"):
        check_journal_header(IDENTITY, header)


@pytest.mark.parametrize(
    ("head", "fault"),
    [
        (b"", "ends after 0 bytes"),
        (journal_header(IDENTITY)[:31], "ends after 31 bytes"),
        (bytes(32), "begins with"),
        (journal_header(object_id(7, 4)), "says it is file 4 of incarnation 7"),
        (journal_header(object_id(8, 3)), "says it is file 3 of incarnation 8"),
        (b"RKJOURNL\x00\x02" + bytes(22), "format version 2"),
    ],
)
def test_fault_in_a_header_is_named(head: bytes, fault: str) -> None:
    with pytest.raises(Corrupt, match=fault):
        check_journal_header(IDENTITY, head)
