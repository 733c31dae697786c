"""Query a topic with SQL, as if it were a table: DuckDB reads the stream as it comes.

    python examples/consumer/duckdb_query.py 127.0.0.1:9092 sightings

The values are JSON objects such as {"bird": "rook", "count": 3}.
"""

from __future__ import annotations

import sys

import duckdb

import rookery
from rookery.decode import DecoderSettings, open_decoder


def main(bootstrap: str, topic: str) -> None:
    """Print how often each bird was seen, and when first and last."""
    sighting = open_decoder("json", DecoderSettings(schema="bird string, count long"))
    query = """
        SELECT value.bird AS bird, sum(value.count) AS seen, min(timestamp), max(timestamp)
        FROM sightings GROUP BY ALL ORDER BY seen DESC, bird
    """
    with rookery.read(bootstrap, topic, value=sighting) as stream, duckdb.connect() as database:
        database.register("sightings", stream)
        result = database.execute(query)
        for bird, seen, first, last in result.fetchall():
            print(f"{bird}: {seen} seen from {first:%H:%M:%S} to {last:%H:%M:%S}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: duckdb_query.py HOST:PORT TOPIC")
    try:
        main(sys.argv[1], sys.argv[2])
    except rookery.Error as error:
        sys.exit(f"error: {error}")
