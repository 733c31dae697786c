"""The three functions that read topics in order of time: `read`, `replay` and `follow`.

    import rookery

    table = rookery.read("localhost:9092", ["orders", "payments"]).to_table()

    for batch in rookery.replay("localhost:9092", "orders", start=timedelta(hours=1)):
        print(batch.num_rows, batch.checkpoint.to_json())

All three return an `OrderedStream`. The cluster is either any Kafka cluster, given by bootstrap
addresses or by `ClientSettings` (for TLS and logins), or Rookery's own objects. Objects are read
without a broker; they are given by the URL of their store or by a `ClusterAddress`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, Unpack

from rookery.client.settings import ClientSettings
from rookery.consumer.positions import Position, Positions
from rookery.consumer.settings import StreamOptions, settings_of
from rookery.consumer.stream import OrderedStream, StreamSubscription
from rookery.direct.place import ClusterAddress

Cluster: TypeAlias = str | ClientSettings | ClusterAddress
"""Bootstrap addresses, client settings, or the location of a log."""
Topics: TypeAlias = str | Sequence[str] | re.Pattern[str] | Mapping[str, Position]
"""One topic, several, a pattern that must match whole names, or a start position per topic."""


def read(
    cluster: Cluster,
    topics: Topics,
    *,
    start: Positions = "earliest",
    end: Positions = "now",
    **options: Unpack[StreamOptions],
) -> OrderedStream:
    """Read the existing rows: from the earliest row to the current end of each partition.

    Args:
        cluster: the cluster to read from.
        topics: the topics; rows with equal times are ordered by the order of this list.
        start: the start position.
        end: the end position.
        **options: the fields of `StreamSettings`.

    Raises:
        ConfigError: an argument cannot be used; the message names it.
    """
    return OrderedStream(cluster, _subscription(topics, start, end), settings_of(options))


def replay(
    cluster: Cluster,
    topics: Topics,
    *,
    start: Positions = "earliest",
    end: Positions = "now",
    then: Literal["stop", "live"] = "stop",
    **options: Unpack[StreamOptions],
) -> OrderedStream:
    """Read from a start to an end, then stop or continue with live rows.

    Args:
        cluster: the cluster to read from.
        topics: the topics to read.
        start: the start position.
        end: the end position; with `then="live"`, the position at which the replay is complete.
        then: whether to stop at the end or to continue with live rows.
        **options: the fields of `StreamSettings`; `speed=1` replays at the original speed.

    Raises:
        ConfigError: an argument cannot be used; the message names it.
    """
    wanted = _subscription(topics, start, end, is_live=then == "live")
    return OrderedStream(cluster, wanted, settings_of(options))


def follow(
    cluster: Cluster,
    topics: Topics,
    *,
    start: Positions = "latest",
    **options: Unpack[StreamOptions],
) -> OrderedStream:
    """Return rows as they arrive, without end.

    Args:
        cluster: the cluster to read from.
        topics: the topics to read.
        start: the start position.
        **options: the fields of `StreamSettings`.

    Raises:
        ConfigError: an argument cannot be used; the message names it.
    """
    wanted = _subscription(topics, start, "now", is_live=True)
    return OrderedStream(cluster, wanted, settings_of(options))


def _subscription(
    topics: Topics, start: Positions, end: Positions, *, is_live: bool = False
) -> StreamSubscription:
    if isinstance(topics, str):
        return StreamSubscription((topics,), None, start, end, is_live=is_live)
    if isinstance(topics, re.Pattern):
        return StreamSubscription((), topics, start, end, is_live=is_live)
    if isinstance(topics, Mapping):
        return StreamSubscription(tuple(sorted(topics)), None, dict(topics), end, is_live=is_live)
    return StreamSubscription(tuple(topics), None, start, end, is_live=is_live)
