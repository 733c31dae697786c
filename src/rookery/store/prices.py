"""Prices of a store's requests."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in dollars; the defaults are those of S3 Standard in us-east-1."""

    put: float = field(default=0.005, metadata={"min": 0})
    """For a thousand requests that create, replace or list."""
    get: float = field(default=0.0004, metadata={"min": 0})
    """For a thousand requests that read or get a size."""
    delete: float = field(default=0.0, metadata={"min": 0})
    """For a thousand requests that delete."""
    read_gb: float = field(default=0.0, metadata={"min": 0})
    """For a gigabyte read; free within a region."""
