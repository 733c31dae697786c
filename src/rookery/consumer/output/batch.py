"""One batch of a stream: Arrow rows and the stream's position after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from rookery.consumer.checkpoint import Checkpoint


class OffsetCommitter(Protocol):
    """Stores the positions of a group."""

    def commit(self, checkpoint: Checkpoint) -> None:
        """Store the checkpoint and wait until it is durable."""

    async def acommit(self, checkpoint: Checkpoint) -> None:
        """Store the checkpoint from an event loop."""


class Batch:
    """A `pyarrow.RecordBatch` with a checkpoint.

    It has all attributes of a RecordBatch and can be passed to any consumer of Arrow data. Use
    `batch.data` where the class itself is required.
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
        """Rows that arrived late, with `late="side"`."""
        self.rejected = rejected
        """Rows that could not be decoded, with the reason, with `on_decode_error="side"`."""
        self._make_checkpoint = checkpoint
        self._checkpoint: Checkpoint | None = None
        self.committer = committer
        """Stores the positions of a group."""

    @property
    def checkpoint(self) -> Checkpoint:
        """The stream's position after this batch; pass it as `start` to resume here."""
        if self._checkpoint is None:
            self._checkpoint = self._make_checkpoint()
        return self._checkpoint

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.data.num_rows

    @property
    def schema(self) -> pa.Schema:
        """The columns' names and types."""
        return self.data.schema

    def commit(self) -> None:
        """Commit everything up to and including this batch for the group.

        Raises:
            ConfigError: the stream has no group.
            ApiError: the commit is rejected; partitions lost in a rebalance are not committed.
        """
        self.committer.commit(self.checkpoint)

    async def acommit(self) -> None:
        """Commit from an event loop."""
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
        """Export the rows through Arrow's C data interface."""
        data: Any = self.data
        capsules: tuple[object, object] = data.__arrow_c_array__(requested_schema)
        return capsules

    def __repr__(self) -> str:
        return f"<Batch of {self.num_rows} rows: {', '.join(self.schema.names)}>"
