"""The keys of log lines. A key has one meaning everywhere, so that tools can search by it.

    log.warning("the group is full", extra={"group": group_id})

A new key is added here first. Every line also has `time`, `level`, `logger` and `msg`.
"""

from __future__ import annotations

from typing import Final

KEYS: Final = {
    "client": "address of the client's end of a connection",
    "dependency": "what the process depends on: store, cluster log, disk, upstream",
    "duration_ms": "how long it took, lasted or may take",
    "error": "what went wrong: message, number of the system's error, or how a process ended",
    "failures": "number of failures in a row",
    "file": "path of a file or folder on this host",
    "group": "group id",
    "metric": "name of a metric",
    "object": "key of an object in the store",
    "offset": "offset of a record",
    "partition": "number of a partition",
    "pause_ms": "how long until the next attempt",
    "role": "what a process other than the server itself does: caretaker",
    "server": "what the process serves: broker",
    "signal": "name of a signal that the process got",
    "subject": "what fails or works again",
    "topic": "name of a topic",
    "transactional_id": "transactional id of a producer",
    "worker": "number of a worker process",
}
"""The meaning of each key."""
