"""The position of a stream, as stored in its checkpoint.

    {"version": 1, "next": {"<topic id>": {"0": 5}}, "origin": {"<topic id>": {"0": 0}}}

Spark compares offsets as text, so equal offsets must give equal text: keys are sorted, and there is
no time and no position in the cluster log. The checkpoint stores only the ends of batches. So each
end also contains the start of every partition, where a repeated first batch starts again.

The end of a batch that has read compacted topics also has `cleaned`: the offset up to which each
partition of the batch was compacted when it was planned and pinned. A batch that is repeated after
the pin has expired can so detect that it would return fewer records. The text stays the same while
the query makes no progress: the next batch starts at the end of the last one, and if there is no
next batch, the plan returns the offset it received. Offsets without `cleaned`, such as those of old
checkpoints, are valid.
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
    """The next offset to read and the first offset read, for each partition."""

    next: Mapping[Key, int] = field(default_factory=dict)
    origin: Mapping[Key, int] = field(default_factory=dict)
    cleaned: Mapping[Key, int] = field(default_factory=dict)
    """The offset up to which each partition of the batch that ends here was compacted."""

    @classmethod
    def beginning(cls, origin: Mapping[Key, int]) -> StreamOffset:
        """Return the start of a stream."""
        return cls(origin, origin)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> StreamOffset:
        """Parse the result of `as_json`.

        Raises:
            Corrupt: it is not an offset, or is of a later version.
        """
        version = stored.get("version")
        if version != VERSION:
            raise Corrupt(
                f"an offset of version {version!r} in the checkpoint: this program knows "
                f"{VERSION}; use the one that wrote it, or a newer one"
            )
        try:
            cleaned = _read(stored.get("cleaned", {}))
            return cls(_read(stored["next"]), _read(stored["origin"]), cleaned)
        except (ConfigError, KeyError, ValueError, AttributeError, TypeError) as error:
            raise Corrupt(f"the checkpoint's offset cannot be read: {error!r}") from error

    def as_json(self) -> dict[str, Any]:
        """Return the form that is stored in the checkpoint."""
        cleaned = {"cleaned": _write(self.cleaned)} if self.cleaned else {}
        both = {"next": _write(self.next), "origin": _write(self.origin)}
        return {**cleaned, **both, "version": VERSION}

    def begin(self, key: Key, end: StreamOffset) -> int:
        """Return the offset at which a batch from here to `end` starts to read a partition.

        If the origins differ, this offset was recreated for a first batch that is repeated, or it
        does not contain the partition yet. The batch then starts at the origin in `end`.
        """
        if key in self.next and self.origin.get(key) == end.origin[key]:
            return self.next[key]
        return end.origin[key]


def _write(numbers: Mapping[Key, int]) -> dict[str, dict[str, int]]:
    written: dict[str, dict[str, int]] = {}
    for (topic_id, partition), number in sorted(numbers.items()):
        written.setdefault(uuid_text(topic_id), {})[str(partition)] = number
    return written


def _read(numbers: Mapping[str, Mapping[str, int]]) -> dict[Key, int]:
    return {
        (parse_uuid_text(topic), int(partition)): int(number)
        for topic, many in numbers.items()
        for partition, number in many.items()
    }
