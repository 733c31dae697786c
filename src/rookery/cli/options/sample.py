"""Options for the number of records that a command measures."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.options.fields import option
from rookery.cli.options.values import count, count_or_none


@dataclass(frozen=True, kw_only=True)
class SampleSize:
    """The number of measured records, and of warm-up records before them."""

    records: int = option(
        "--records",
        type=count,
        default=1_000_000,
        metavar="N",
        help="the number of records, such as 10k or 1M (default: %(default)s)",
    )
    warmup: int = option(
        "--warmup",
        type=count_or_none,
        default=0,
        metavar="N",
        help="the number of warm-up records, which are not measured (default: %(default)s)",
    )

    @property
    def total(self) -> int:
        """The number of all records, including the warm-up."""
        return self.warmup + self.records
