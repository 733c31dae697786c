"""The files that a virtual cluster reads when it is created, and whether their contents change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

from rookery.proxy.settings import ProxySettings, VirtualClusterSettings

_SUFFIX: Final = "_file"
# Each login reads it again.
_FRESH: Final = "token_file"

FileDigests = Mapping[Path, str]
"""The digest of each file; empty if it cannot be read."""


def digest_files(settings: ProxySettings) -> dict[str, FileDigests]:
    """Return the contents of each virtual cluster's files, as digests.

    These are the files of its filters, which are options whose names end in `_file`, and those with
    which it logs in to the upstream. Certificates and users of its own are read again by
    themselves.
    """
    return {
        name: {path: _digest(path) for path in _paths(settings, cluster)}
        for name, cluster in settings.virtual_clusters().items()
    }


def find_touched(old: Mapping[str, FileDigests], new: Mapping[str, FileDigests]) -> list[str]:
    """Return the virtual clusters of which a file has other contents than before."""
    return [name for name, digests in new.items() if digests != old.get(name)]


def _paths(settings: ProxySettings, cluster: VirtualClusterSettings) -> Iterator[Path]:
    for name in cluster.filters:
        definition = settings.filter.get(name)
        for option, value in definition.options.items() if definition is not None else ():
            if option.endswith(_SUFFIX) and isinstance(value, str) and value:
                yield Path(value)
    access = cluster.upstream_security
    for field in fields(access):
        value = getattr(access, field.name)
        if field.name.endswith(_SUFFIX) and field.name != _FRESH and value:
            yield Path(value)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
