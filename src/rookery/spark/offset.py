"""How far a stream has read, as its checkpoint keeps it.

    {"version": 1, "next": {"<topic id>": {"0": 5}}, "origin": {"<topic id>": {"0": 0}}}

Spark compares offsets as text, so the same offsets are always the same text: keys in order, no
clock, no position in the cluster log. The checkpoint keeps the ends of batches alone, hence each
carries where every partition was begun: a first batch that is run again begins there, too.

The end of a batch that has read compacted topics also has `cleaned`: how far compaction had come in
the partitions that the batch reads, when it was planned and they were pinned. A batch that is run
again when the pin has ended so learns that it would get fewer records. It is the same text for as
long as the query stands there: where a batch ended, the next one begins, and if there is none, the
plan returns what it was given. Offsets without it, such as those of old checkpoints, are good, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rookery.errors import ConfigError, Corrupt
from rookery.model.uuid import parse_uuid_text, uuid_text

VERSION: Final = 1

Key = tuple[bytes, int]
"""Topic id and partition."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next offset to read in each partition, and the first that was."""

    next: Mapping[Key, int] = field(default_factory=dict)
    origin: Mapping[Key, int] = field(default_factory=dict)
    cleaned: Mapping[Key, int] = field(default_factory=dict)
    """How far the partitions were compacted that the batch which ends here reads."""

    @classmethod
    def beginning(cls, origin: Mapping[Key, int]) -> StreamOffset:
        """Return where a stream begins."""
        return cls(origin, origin)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> StreamOffset:
        """Read what `as_json` returned.

        Raises:
            Corrupt: it is something else, or of a later version.
        """
        version = found.get("version")
        if version != VERSION:
            raise Corrupt(
                f"an offset of version {version!r} in the checkpoint: this program knows "
                f"{VERSION}; use the one that wrote it, or a newer one"
            )
        try:
            cleaned = _read(found.get("cleaned", {}))
            return cls(_read(found["next"]), _read(found["origin"]), cleaned)
        except (ConfigError, KeyError, ValueError, AttributeError, TypeError) as error:
            raise Corrupt(f"the checkpoint's offset cannot be read: {error!r}") from error

    def as_json(self) -> dict[str, Any]:
        """Return it as the checkpoint keeps it."""
        cleaned = {"cleaned": _write(self.cleaned)} if self.cleaned else {}
        both = {"next": _write(self.next), "origin": _write(self.origin)}
        return {**cleaned, **both, "version": VERSION}

    def begin(self, key: Key, end: StreamOffset) -> int:
        """Return where a batch from here to `end` begins to read a partition.

        If it was begun elsewhere than `end` knows, this was made up anew for a first batch that is
        run again, or does not know the partition yet.
        """
        if key in self.next and self.origin.get(key) == end.origin[key]:
            return self.next[key]
        return end.origin[key]


def _write(numbers: Mapping[Key, int]) -> dict[str, dict[str, int]]:
    written: dict[str, dict[str, int]] = {}
    for (topic_id, partition), number in sorted(numbers.items()):
        written.setdefault(uuid_text(topic_id), {})[str(partition)] = number
    return written


def _read(found: Mapping[str, Mapping[str, int]]) -> dict[Key, int]:
    return {
        (parse_uuid_text(topic), int(partition)): int(number)
        for topic, many in found.items()
        for partition, number in many.items()
    }
