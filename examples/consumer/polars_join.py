"""Join two topics by time: each sighting with the weather that held when it was made.

    python examples/consumer/polars_join.py 127.0.0.1:9092 sightings weather

Sightings are JSON such as {"bird": "rook", "count": 3}, the weather is such as {"celsius": 7.5}.
"""

from __future__ import annotations

import sys

import polars as pl

import rookery
from rookery.decode import DecoderSettings, open_decoder


def main(bootstrap: str, sightings: str, weather: str) -> None:
    """Print every sighting with the last temperature before it."""
    seen = topic_frame(bootstrap, sightings, "bird string, count long")
    felt = topic_frame(bootstrap, weather, "celsius double")
    joined = seen.join_asof(felt, on="timestamp")  # both are in the order of time already
    for when, bird, count, celsius in joined.iter_rows():
        print(f"{when:%H:%M:%S} {count} {bird} at {celsius} °C")


def topic_frame(bootstrap: str, topic: str, schema: str) -> pl.DataFrame:
    """Read a topic of JSON objects into a frame with a column for each field."""
    decoder = open_decoder("json", DecoderSettings(schema=schema))
    with rookery.read(bootstrap, topic, value=decoder, columns=["timestamp", "value"]) as stream:
        return stream.polars().unnest("value").set_sorted("timestamp")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: polars_join.py HOST:PORT SIGHTINGS WEATHER")
    try:
        main(*sys.argv[1:])
    except rookery.Error as error:
        sys.exit(f"error: {error}")
