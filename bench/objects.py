"""A broker over an object store with PUT 50 ms / GET 20 ms, with the store alone and Kafka.

    python bench/objects.py [--only rates,latency] [--stub] [--quick] [--json]

The store is SeaweedFS with a delaying proxy, the cluster log an etcd of one member. SeaweedFS
takes about ten seconds of CPU for each gigabyte, which on few cores hides the broker's own limits;
with `--stub` an in-memory stub of S3 takes its place. Compared figures were measured in the same
run: the store's own rates through the same client library, Kafka's CPU with the same load.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable

from objectparts.figures import Figures
from objectparts.latency import latency
from objectparts.puts import puts
from objectparts.rates import rates
from objectparts.scene import Scene
from objectparts.trickle import trickle
from objectparts.upkeep import upkeep
from rich.console import Console

PARTS: dict[str, Callable[[Scene], None]] = {
    "rates": rates, "latency": latency, "puts": puts, "cpu": upkeep, "trickle": trickle,
}  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--stub", action="store_true", help="a stub of S3 instead of SeaweedFS")
    parser.add_argument("--megabytes", type=int, default=1000, help="to measure throughput with")
    parser.add_argument("--quick", action="store_true", help="few rounds, and 200 MB")
    parser.add_argument("--json", action="store_true", help="the figures as JSON, progress aside")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := set(names) - set(PARTS):
        sys.exit(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    figures = Figures(Console(width=150, stderr=arguments.json))
    megabytes = 200 if arguments.quick else arguments.megabytes
    scene = Scene(figures, arguments.stub, megabytes, arguments.quick)
    for name in names:
        figures.say(f"{name}: load of the machine {os.getloadavg()[0]:.1f}")
        PARTS[name](scene)
    if arguments.json:
        print(json.dumps(figures.as_json()))
    else:
        figures.show(f"{'stub of S3' if arguments.stub else 'SeaweedFS'}, PUT 50 ms, GET 20 ms")


if __name__ == "__main__":
    main()
