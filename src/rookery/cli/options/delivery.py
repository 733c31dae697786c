"""Options for sending records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rookery.cli.options.fields import option, switch
from rookery.cli.options.values import count, count_or_none

if TYPE_CHECKING:
    from rookery.client.settings import ProducerSettings

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
# The numbers are Kafka's.
ACKS: Final = {"0": 0, "1": 1, "all": -1}
# Long enough for a full buffer and a slow connection, regardless of --timeout.
_DELIVERY_MS: Final = 60_000


@dataclass(frozen=True, kw_only=True)
class DeliveryOptions:
    """Compression, acknowledgements and batches."""

    compression: str = option(
        "-z",
        "--compression",
        choices=COMPRESSIONS,
        default="none",
        help="the compression of batches (default: %(default)s)",
    )
    acks: str = option(
        "--acks",
        choices=tuple(ACKS),
        default="all",
        help="the replicas that must have a record before it is acknowledged (default: "
        "%(default)s)",
    )
    no_idempotence: bool = switch(
        "--no-idempotence",
        help="disable idempotence, so that retries can duplicate records (default: enabled "
        "with --acks all)",
    )
    linger_ms: int = option(
        "--linger-ms",
        type=count_or_none,
        default=5,
        metavar="MS",
        help="how long a batch waits for more records (default: %(default)s)",
    )
    batch_bytes: int = option(
        "--batch-bytes",
        type=count,
        default=256 * 1024,
        metavar="BYTES",
        help="the size at which a batch is sent immediately (default: %(default)s)",
    )
    max_request_bytes: int | None = option(
        "--max-request-bytes",
        type=count,
        metavar="BYTES",
        help="the maximum size of a request, which also limits records (default: 1Mi, or four "
        "batches)",
    )

    def producer_settings(self, timeout_ms: int) -> ProducerSettings:
        """Return the settings of the producer; the deadline of a record is at least a minute."""
        from rookery.client.settings import ProducerSettings

        return ProducerSettings(
            acks=ACKS[self.acks],
            is_idempotent=False if self.no_idempotence else None,
            compression=self.compression,
            linger_ms=self.linger_ms,
            batch_bytes=self.batch_bytes,
            max_request_bytes=self.max_request_bytes or max(4 * self.batch_bytes, 1 << 20),
            delivery_timeout_ms=max(timeout_ms, _DELIVERY_MS),
        )
