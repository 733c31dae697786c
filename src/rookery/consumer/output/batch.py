"""One batch of a stream: Arrow rows, and where the stream stands behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from rookery.consumer.checkpoint import Checkpoint


class OffsetCommitter(Protocol):
    """Stores for a group how far it has read."""

    def commit(self, checkpoint: Checkpoint) -> None:
        """Store it and wait until it is safe."""

    async def acommit(self, checkpoint: Checkpoint) -> None:
        """Do the same for callers on an event loop."""


class Batch:
    """A `pyarrow.RecordBatch` with a checkpoint.

    It has all attributes of a RecordBatch, and can be given to whatever takes Arrow data; where
    the class itself is asked for, use `batch.data`.
    """

    def __init__(
        self,
        data: pa.RecordBatch,
        checkpoint: Callable[[], Checkpoint],
        committer: OffsetCommitter,
        late: pa.RecordBatch | None = None,
        rejected: pa.RecordBatch | None = None,
    ) -> None:
        self.data = data
        """The rows."""
        self.late = late
        """Rows that came after their time, with `late="side"`."""
        self.rejected = rejected
        """Rows that could not be decoded and why, with `on_decode_error="side"`."""
        self._make_checkpoint = checkpoint
        self._checkpoint: Checkpoint | None = None
        self.committer = committer
        """Who stores for a group how far it has read."""

    @property
    def checkpoint(self) -> Checkpoint:
        """Where the stream stands behind this batch: give it as `start` to go on from here."""
        if self._checkpoint is None:
            self._checkpoint = self._make_checkpoint()
        return self._checkpoint

    @property
    def num_rows(self) -> int:
        """How many rows."""
        return self.data.num_rows

    @property
    def schema(self) -> pa.Schema:
        """The columns' names and types."""
        return self.data.schema

    def commit(self) -> None:
        """Store for the group that everything up to this batch was processed.

        Raises:
            ConfigError: the stream has no group.
            ApiError: it is refused; after a rebalance, partitions that were lost are left out.
        """
        self.committer.commit(self.checkpoint)

    async def acommit(self) -> None:
        """Do the same on an event loop."""
        await self.committer.acommit(self.checkpoint)

    def __len__(self) -> int:
        return self.data.num_rows

    def __getitem__(self, key: str | int) -> pa.Array[Any]:
        return self.data.column(key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.data, name)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Hand the rows over by Arrow's C data interface."""
        data: Any = self.data
        found: tuple[object, object] = data.__arrow_c_array__(requested_schema)
        return found

    def __repr__(self) -> str:
        return f"<Batch of {self.num_rows} rows: {', '.join(self.schema.names)}>"
