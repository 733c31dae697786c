"""The outcomes of batches (stored, retried or given up), reported to queues and waiters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rookery.client.connect.retry import ClientRetrier
from rookery.client.produce.producerbatch import PartitionQueue, ProducerBatch
from rookery.clock import Clock
from rookery.errors import Error


class Outcomes:
    """Reports the outcomes of one producer's batches."""

    def __init__(
        self,
        retrier: ClientRetrier,
        clock: Clock,
        on_settled: Callable[[ProducerBatch, Error | None], None],
    ) -> None:
        """Create it; nothing is reported yet.

        Args:
            retrier: computes the pauses between tries.
            clock: gives the time of the next try.
            on_settled: called with each batch when its outcome is final.
        """
        self._retrier = retrier
        self._clock = clock
        self._on_settled = on_settled
        self.news = asyncio.Event()
        """Set when there may be a batch to send."""
        self.retried_batches = 0

    def store(
        self, queue: PartitionQueue, batch: ProducerBatch, offset: int, append_time: int
    ) -> None:
        """Report that a batch is stored."""
        queue.on_stored(batch)
        batch.succeed(offset, append_time)
        self._on_settled(batch, None)

    def retry(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Keep a batch for another try, after a pause."""
        self.retried_batches += 1
        queue.on_failed(batch, self._retry_at(queue))

    def give_up(self, queue: PartitionQueue, batches: list[ProducerBatch], error: Error) -> None:
        """Fail batches permanently."""
        for batch in batches:
            queue.on_given_up(batch)
            batch.fail(error)
            self._on_settled(batch, error)

    def pause(self, queue: PartitionQueue) -> None:
        """Pause a queue before its next try; the pauses grow."""
        queue.retry_at = self._retry_at(queue)

    def _retry_at(self, queue: PartitionQueue) -> int:
        queue.tries += 1
        return self._clock.monotonic_ms() + int(self._retrier.backoff_ms(queue.tries))
