"""Our proxy and Kroxylicious 0.12.0, in front of the same Apache Kafka 4.3.1, in one run.

Every client runs through three routes in turns: direct, through our proxy, through Kroxylicious.
Throughput is a share of direct; latency is what a proxy adds; CPU is the proxy's own, user and
system. Rounds that are discarded warm the JVMs first. Both proxies stay up: an idle one costs
nothing.

Examples:
  python bench/proxy.py
  python bench/proxy.py --quick --only "consume 1 KB,latency at half load"
  python bench/proxy.py --quick --rounds 3 --share 0.4    all rows within a quarter of an hour
  python bench/proxy.py --json > proxy.json
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable

from proxyparts.encryption import encryption
from proxyparts.figures import Figures
from proxyparts.latency import latency
from proxyparts.memory import memory
from proxyparts.rig import start_rig
from proxyparts.scene import Scene
from proxyparts.throughput import throughput
from rich.console import Console


def parse() -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = "throughput,latency,memory,encryption"
    parser.add_argument("--parts", default=parts, help=f"what to measure (default: {parts})")
    parser.add_argument("--only", default="", help="parts of scenario names, separated by commas")
    parser.add_argument("--rounds", type=int, help="rounds that count (default: 3; quick: 1)")
    parser.add_argument("--warm-ups", type=int, help="discarded rounds (default: 2; quick: 1)")
    parser.add_argument("--connections", type=int, default=2000, help="idle ones, for memory")
    parser.add_argument("--flags", default="", help='of our proxy, such as "--workers 2"')
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the records")
    parser.add_argument("--share", type=float, help="of the records (default: 1; quick: 0.1)")
    parser.add_argument("--json", action="store_true", help="the figures as JSON, progress aside")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    arguments = parse()
    measures: dict[str, Callable[[Scene], None]] = {
        "throughput": throughput,
        "latency": latency,
        "encryption": encryption,
        "memory": lambda scene: memory(scene, arguments.connections),
    }
    names = arguments.parts.split(",")
    if unknown := set(names) - set(measures):
        sys.exit(f"there is no part {', '.join(unknown)}; there are {', '.join(measures)}")
    figures = Figures(Console(width=170, stderr=arguments.json))
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    warm_ups = (1 if arguments.quick else 2) if arguments.warm_ups is None else arguments.warm_ups
    only = tuple(part for part in arguments.only.split(",") if part)
    with start_rig(shlex.split(arguments.flags)) as rig:
        share = arguments.share or (0.1 if arguments.quick else 1.0)
        scene = Scene(rig, figures, rounds, warm_ups, share, arguments.quick, only)
        began = time.monotonic()
        for name in names:
            minutes, load = (time.monotonic() - began) / 60, os.getloadavg()[0]
            figures.say(f"{name}: load of the machine {load:.1f}, after {minutes:.1f} minutes")
            measures[name](scene)
        figures.say(f"all in {(time.monotonic() - began) / 60:.1f} minutes")
    if arguments.json:
        print(json.dumps(figures.as_json()))
    else:
        figures.show("direct, our proxy and Kroxylicious 0.12.0 in front of Apache Kafka 4.3.1")


if __name__ == "__main__":
    main()
