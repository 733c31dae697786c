"""Turn a topic into a time series: how many birds were seen in each minute.

    python examples/consumer/pandas_resample.py 127.0.0.1:9092 sightings

The values are JSON objects such as {"bird": "rook", "count": 3}. Rows come in the order of time, so
the frame's index is sorted and can be resampled as it is.
"""

from __future__ import annotations

import sys

import rookery
from rookery.decode import DecoderSettings, open_decoder


def main(bootstrap: str, topic: str) -> None:
    """Print one line a minute."""
    sighting = open_decoder("json", DecoderSettings(schema="bird string, count long"))
    with rookery.read(
        bootstrap, topic, value=sighting, columns=["timestamp", "value"], late="drop"
    ) as stream:
        frame = stream.pandas()
    counts = frame.set_index("timestamp")["value"].map(lambda value: value["count"])
    for minute, seen in counts.resample("1min").sum().items():
        print(f"{minute:%H:%M}: {seen}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: pandas_resample.py HOST:PORT TOPIC")
    try:
        main(sys.argv[1], sys.argv[2])
    except rookery.Error as error:
        sys.exit(f"error: {error}")
