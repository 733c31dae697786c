"""Keeps readers on the host of a cluster log that is a file: hosts must not share such a file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rookery.direct.place import Place
from rookery.errors import ConfigError

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def host_mark(place: Place) -> str:
    """Return what tells this host's file from others; empty if the log is for all hosts."""
    path = place.origin().log_traits.path
    if path is None:
        return ""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    try:
        found = path.stat()
    except OSError:
        return "absent"
    return f"{boot}/{found.st_dev}/{found.st_ino}"


def check_host(place: Place, mark: str) -> None:
    """Refuse to read a folder on another host than the one it was planned on.

    Raises:
        ConfigError: this is another.
    """
    if mark and host_mark(place) != mark:
        raise ConfigError(
            f"{place.origin().name}: its cluster log is a file of the driver's host, which "
            "executors on other hosts cannot read; use master local[*], or brokers with a store "
            "(and etcd) that all hosts reach"
        )
