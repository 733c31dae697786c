"""The three ways to read topics in the order of time: `read`, `replay` and `follow`.

    import rookery

    table = rookery.read("localhost:9092", ["orders", "payments"]).to_table()

    for batch in rookery.replay("localhost:9092", "orders", start=timedelta(hours=1)):
        print(batch.num_rows, batch.checkpoint.to_json())

All three return an `OrderedStream`. The cluster is any Kafka by its bootstrap addresses, with
`ClientSettings` for TLS and logins; or Rookery's own objects with no broker in between, by a URL
of their store or a `ClusterAddress`.
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
"""Bootstrap addresses, settings of a client, or where a log lies."""
Topics: TypeAlias = str | Sequence[str] | re.Pattern[str] | Mapping[str, Position]
"""One topic, several, a pattern that whole names match, or a start for each."""


def read(
    cluster: Cluster,
    topics: Topics,
    *,
    start: Positions = "earliest",
    end: Positions = "now",
    **options: Unpack[StreamOptions],
) -> OrderedStream:
    """Read what is there: from the earliest row to where the partitions end now.

    Args:
        cluster: whose topics.
        topics: which; of equal times, the one named first comes first.
        start: where to begin.
        end: where to end.
        **options: the fields of `StreamSettings`.

    Raises:
        ConfigError: something cannot be used; the text names it.
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
    """Read from a start to an end; then stop, or stay and hand out what comes.

    Args:
        cluster: whose topics.
        topics: which.
        start: where to begin.
        end: where to end, or with `then="live"` where the replay counts as over.
        then: what follows.
        **options: the fields of `StreamSettings`; `speed=1` replays as fast as it was written.

    Raises:
        ConfigError: something cannot be used; the text names it.
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
    """Hand out rows as they come, without end.

    Args:
        cluster: whose topics.
        topics: which.
        start: where to begin.
        **options: the fields of `StreamSettings`.

    Raises:
        ConfigError: something cannot be used; the text names it.
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
