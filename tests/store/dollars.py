"""Uses a store at given prices and checks the resulting cost, in a separate process."""

from __future__ import annotations

import asyncio
import sys

import pytest

from rookery import metrics
from rookery.store import meter
from rookery.store.open import open_store
from rookery.store.prices import Prices
from rookery.store.wrappers import CountedStore, cost, cost_per_gb


async def main(url: str) -> None:
    """Create, read, look at and delete an object; the first two attempts to create it fail."""
    prices = Prices(put=5.0, get=1.0, delete=0.5, read_gb=1e9)
    store = CountedStore(open_store(url), prices)
    before = cost(prices)
    await store.create("key", [b"x" * 1000])
    assert cost(prices) - before == pytest.approx(3 * 0.005)
    before = cost(prices)
    await store.read("key", 0, 10)
    await store.size("key")
    await store.delete("key")
    assert cost(prices) - before == pytest.approx(2 * 0.001 + 0.0005 + 10)
    lines = metrics.REGISTRY.expose().splitlines()
    assert f"rookery_store_cost_dollars {cost(prices)!r}" in lines
    gigabytes = meter.WRITTEN_BYTES.value / 1e9
    assert cost_per_gb(prices) == pytest.approx(cost(prices) / gigabytes)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
