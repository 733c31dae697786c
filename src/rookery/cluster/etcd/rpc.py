"""Configures gRPC before it is loaded: all modules here import it from this one.

By default gRPC supports forked processes, and stops and restarts its threads around every fork. If
one of these threads is busy, the child process crashes: Java, which pyspark starts by a fork,
fails to start (1 of 15 to 60 times). Rookery never uses gRPC in a process that was forked while a
channel was open, so this support is disabled.
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # noqa: TID251 (written, for gRPC to read)

import grpc

__all__ = ["grpc"]
