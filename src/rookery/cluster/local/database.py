"""The cluster log as an SQLite file: its tables, its statements and its errors.

All functions here block, so they run in threads; a `Database` belongs to the thread that opened
it. The log's last row is never deleted, even when it is trimmed, because the next number is
derived from it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rookery.cluster.port import Durability, EntriesTrimmed, LogEntry, check_empty, check_trim
from rookery.errors import ConfigError, Corrupt, Error, Unavailable
from rookery.records.crc import checksum
from rookery.store.syncfolder import sync_folder

FORMAT: Final = 1
"""The version of the tables, stored in the file as `user_version`."""

PAGE_BYTES: Final = 4096
LAID_OUT_BYTES: Final = 8 << 20

_APPLICATION: Final = 0x526B4C67
# Only a foreign program can hold SQLite's own lock: our processes queue at the turnstile.
_BUSY_SECONDS: Final = 2.0
_TRIM_BYTES: Final = 4 * 1024 * 1024
_TRIM_ENTRIES: Final = 256
# In "os" mode a commit does not sync, but a checkpoint does. With OFF, a power cut could bring old
# pages back between new ones; NORMAL can only lose the end of the log.
_SYNCHRONOUS: Final[dict[Durability, str]] = {"disk": "FULL", "os": "NORMAL"}
_SCHEMA: Final = f"""
    BEGIN IMMEDIATE;
    CREATE TABLE entry (number INTEGER PRIMARY KEY, crc INTEGER NOT NULL, data BLOB NOT NULL);
    CREATE TABLE log (id INTEGER PRIMARY KEY CHECK (id = 1), floor INTEGER NOT NULL);
    INSERT INTO log VALUES (1, 0);
    PRAGMA application_id = {_APPLICATION};
    PRAGMA user_version = {FORMAT};
    COMMIT;
"""  # noqa: S608 (two numbers of our own)


class Database:
    """One connection to the file."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.path = path
        # The file must exist: a second thread must not create an empty one if it was lost. Each
        # statement is its own transaction unless BEGIN says otherwise.
        self._connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
        )
        try:
            self._set(durability)
        except BaseException:
            self._connection.close()
            raise

    def create(self) -> None:
        """Create the tables if the file is new; reject a foreign file or a newer format."""
        header = (self._scalar("PRAGMA application_id"), self._scalar("PRAGMA user_version"))
        if header == (0, 0) and not self._scalar("SELECT count(*) FROM sqlite_schema"):
            self._connection.executescript(_SCHEMA)
            sync_folder(self.path.parent)
        elif header[0] != _APPLICATION:
            raise Corrupt(f"{self.path}: an SQLite file, but no cluster log of Rookery's")
        elif header[1] != FORMAT:
            raise Corrupt(
                f"{self.path}: a cluster log of format {header[1]}, and this version of Rookery "
                f"reads format {FORMAT}: use the version that wrote it"
            )

    def append(self, entries: Sequence[bytes]) -> int:
        """Insert entries in one transaction; return the last one's number."""
        # One statement, because every call into SQLite releases and reacquires the interpreter
        # lock.
        values = ",".join(["(?,?)"] * len(entries))
        parameters: list[int | bytes] = []
        for data in entries:
            parameters += (checksum(data), data)
        cursor = self._connection.execute(
            f"INSERT INTO entry (crc, data) VALUES {values}",  # noqa: S608 (question marks only)
            parameters,
        )
        if cursor.lastrowid is None:  # pragma: no cover (only an INSERT of nothing)
            raise ValueError("no entries to append")
        return cursor.lastrowid

    def read(self, after: int, max_bytes: int) -> list[LogEntry]:
        """Return entries that follow number `after`."""
        entries: list[LogEntry] = []
        size = 0
        rows = self._connection.execute(
            "SELECT number, crc, data, (SELECT floor FROM log) FROM entry "
            "WHERE number > ? ORDER BY number",
            (after,),
        )
        try:
            for number, crc, data, floor in rows:
                if after < floor:
                    raise EntriesTrimmed(after, floor)
                size += len(data)
                if entries and size > max_bytes:
                    break
                self._check(after + 1 + len(entries), number, crc, data)
                entries.append(LogEntry(number, data))
        finally:
            # This ends the snapshot: an open one would keep the WAL from restarting.
            rows.close()
        return entries

    def head(self) -> int:
        """Return the last entry's number, 0 if there is none."""
        return self._scalar("SELECT coalesce(max(number), 0) FROM entry")

    def floor(self) -> int:
        """Return the highest number that was trimmed."""
        return self._scalar("SELECT floor FROM log")

    def raise_floor(self, before: int) -> None:
        """Raise the floor, which hides the entries below a number from readers."""
        check_trim(before, self.head())
        self._connection.execute("UPDATE log SET floor = max(floor, ?)", (before - 1,))

    def begin_after(self, number: int) -> None:
        """Make an empty log continue after a number, by inserting an already trimmed entry."""
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        try:
            check_empty(self.head())
            run("INSERT INTO entry VALUES (?, ?, ?)", (number, checksum(b""), b""))
            run("UPDATE log SET floor = ?", (number,))
            run("COMMIT")
        except BaseException:
            run("ROLLBACK")
            raise

    def delete_some(self) -> bool:
        """Delete some of the trimmed entries; return whether there are more."""
        rows = self._connection.execute(
            "SELECT number, length(data) FROM entry WHERE number <= (SELECT floor FROM log) "
            "AND number < (SELECT max(number) FROM entry) ORDER BY number LIMIT ?",
            (_TRIM_ENTRIES,),
        ).fetchall()
        last = size = 0
        for number, length in rows:
            last, size = number, size + length
            if size > _TRIM_BYTES:
                break
        if not rows:
            return False
        self._connection.execute("DELETE FROM entry WHERE number <= ?", (last,))
        return True

    def checkpoint(self) -> tuple[int, int]:
        """Copy the WAL into the file; return its size in pages, and the number of pages copied.

        It blocks no other connection. If all pages were copied, the next commit restarts the WAL.
        """
        _, pages, copied = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return pages, copied

    def lay_out(self) -> None:
        """Fill the WAL with zeros up to its usual size, while no other process can write.

        A sync that does not have to record a new file size takes half the time. SQLite reads a WAL
        up to the first page that is not of its current generation, so it ignores zeros after the
        end.
        """
        with Path(f"{self.path}-wal").open("r+b") as wal:
            size = wal.seek(0, os.SEEK_END)
            if size < LAID_OUT_BYTES:
                wal.write(bytes(LAID_OUT_BYTES - size))
                os.fsync(wal.fileno())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _set(self, durability: Durability) -> None:
        run = self._connection.execute
        run(f"PRAGMA page_size = {PAGE_BYTES}")
        if run("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise ConfigError(
                f"{self.path}: this file system does not let SQLite share memory between "
                "processes (WAL); put the cluster log on a local disk"
            )
        run(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
        run("PRAGMA wal_autocheckpoint = 0")
        # Overwriting deleted data with zeros would double the writes of a trim.
        run("PRAGMA secure_delete = OFF")

    def _scalar(self, statement: str) -> int:
        value: int = self._connection.execute(statement).fetchone()[0]
        return value

    def _check(self, expected: int, number: int, crc: int, data: bytes) -> None:
        if number != expected:
            raise Corrupt(f"{self.path}: entry {expected} is missing; restore the file from a copy")
        if checksum(data) != crc:
            raise Corrupt(
                f"{self.path}: entry {number} fails its checksum; restore the file from a copy"
            )


_ADVICE: Final = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space",
    sqlite3.SQLITE_IOERR: "the disk fails: look into the system's log",
    sqlite3.SQLITE_BUSY: "another program holds it: close whatever has the file open",
    sqlite3.SQLITE_LOCKED: "another program holds it: close whatever has the file open",
    sqlite3.SQLITE_READONLY: "it may not be written: look at its permissions",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: look at its permissions",
    sqlite3.SQLITE_PERM: "it cannot be opened: look at its permissions",
}


def translate(error: sqlite3.Error | OSError, path: Path) -> Error:
    """Translate an error of SQLite or the operating system into a Rookery error."""
    if isinstance(error, OSError):
        return Unavailable(f"{path}: {error}")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return Corrupt(f"{path}: {error}; stop the brokers and restore the file from a copy")
    advice = _ADVICE.get(code, "look into the system's log")
    name = getattr(error, "sqlite_errorname", "no code")
    return Unavailable(f"{path}: {error} ({name}); {advice}")
