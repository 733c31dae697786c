"""gRPC, set up before it is loaded: everybody here takes it from this module.

It wants to go on in processes that are forked, and for that stops and starts its threads around
every fork. If one of them is at work, the new process crashes: Java, which pyspark starts by a
fork, does not come up (1 of 15 to 60). Nothing of ours uses it in a process that was forked while
it was open, so it need not.
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # noqa: TID251 (written, for gRPC to read)

import grpc

__all__ = ["grpc"]
