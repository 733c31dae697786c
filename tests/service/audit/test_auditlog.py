"""The audit file: whole lines, bounded memory, rotation, and records of what was lost."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rookery.errors import ConfigError
from rookery.net.session import ClientSession
from rookery.service.audit.auditlog import DROPPED, AuditLog
from rookery.testing.clock import ManualClock
from rookery.testing.wait import wait_until

CLIENT = ClientSession(principal="User:alice", listener="external", host="10.0.0.1")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_records_are_lines_of_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(str(path), ManualClock())
    audit.record_login(CLIENT, "User:alice")
    audit.record_login(CLIENT, "User:bob\n", reason="SASL_AUTHENTICATION_FAILED")
    audit.close()

    first, second = lines(path)
    assert first == {
        "time": "2023-11-14T22:13:20.000Z",
        "kind": "login",
        "principal": "User:alice",
        "host": "10.0.0.1",
        "listener": "external",
        "decision": "allowed",
    }
    assert (second["decision"], second["reason"]) == ("denied", "SASL_AUTHENTICATION_FAILED")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_lines_are_added_to_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for _ in range(2):
        audit = AuditLog(str(path), ManualClock())
        audit.record_login(CLIENT, "User:alice")
        audit.close()

    assert len(lines(path)) == 2


def test_rotated_file_is_opened_again(tmp_path: Path) -> None:
    path, old = tmp_path / "audit.log", tmp_path / "audit.log.1"
    audit = AuditLog(str(path), ManualClock())
    audit.record_login(CLIENT, "User:first")
    wait_until(lambda: bool(path.read_text()))
    path.rename(old)
    audit.record_login(CLIENT, "User:second")
    audit.close()

    assert [line["principal"] for line in lines(old)] == ["User:first"]
    assert [line["principal"] for line in lines(path)] == ["User:second"]


def test_records_beyond_the_limit_are_dropped_and_counted(tmp_path: Path) -> None:
    # A pipe that nothing reads blocks the thread as a stalled disk would.
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    before = DROPPED.value
    audit = AuditLog(str(path), ManualClock(), max_queued=10)
    principal = "User:" + "x" * 1_000
    while DROPPED.value < before + 5:
        audit.record_login(CLIENT, principal)

    data = bytearray()

    def drain() -> None:
        os.set_blocking(reader, True)
        while part := os.read(reader, 65_536):
            data.extend(part)

    thread = threading.Thread(target=drain)
    thread.start()
    audit.close()
    thread.join()
    os.close(reader)
    counted = [json.loads(line) for line in data.splitlines()]
    dropped = [entry["count"] for entry in counted if entry["kind"] == "dropped"]
    assert sum(dropped) == DROPPED.value - before
    assert all("time" in entry for entry in counted)


def test_failed_write_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = folder / "audit.log"
    before = DROPPED.value
    audit = AuditLog(str(path), ManualClock())
    path.unlink()
    folder.rmdir()
    for number in range(2):
        audit.record_login(CLIENT, "User:alice")
        wait_until(lambda number=number: before + number < DROPPED.value)  # type: ignore[misc] # bound at once
    folder.mkdir()
    audit.record_login(CLIENT, "User:bob")
    audit.close()

    errors = [
        message for message in caplog.messages if message.startswith("audit records are lost")
    ]
    assert len(errors) == 1
    kinds = [line["kind"] for line in lines(path)]
    assert kinds == ["login", "dropped"]


FULL_DISK = """
import resource, sys
from rookery.service.audit.auditlog import DROPPED, AuditLog
from rookery.testing.clock import ManualClock
from rookery.testing.wait import wait_until
from tests.service.audit.test_auditlog import CLIENT

audit = AuditLog(sys.argv[1], ManualClock())
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
while not DROPPED.value:
    audit.record_login(CLIENT, "User:alice")
wait_until(lambda: not audit._queue)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
audit.record_login(CLIENT, "User:bob")
audit.close()
"""
"""Writes records while files can have 1 000 bytes, and one more after that."""


def test_line_that_a_full_disk_cuts_off_spoils_no_other(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    path = tmp_path / "audit.log"

    program = [sys.executable, "-c", FULL_DISK, str(path)]
    subprocess.run(program, check=True, timeout=60, cwd=pytestconfig.rootpath)

    data = path.read_bytes()[:1_000]
    torn = data.rpartition(b"\n")[2].decode()
    assert torn
    written = path.read_text().splitlines()
    written.remove(torn)
    records = [json.loads(line) for line in written]
    assert {"User:alice", "User:bob"} <= {record.get("principal") for record in records}
    assert "dropped" in {record["kind"] for record in records}


def test_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="audit_file"):
        AuditLog(str(tmp_path / "missing" / "audit.log"), ManualClock())
