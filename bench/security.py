"""The cost of security: TLS, logins and access rules, compared with Apache Kafka 4.3.1 in one run.

    python bench/security.py [--only rates,rules,logins,busy,storm] [--rounds 3] [--quick] [--json]
    python bench/security.py --only logins --quick

Both brokers run at the same time and are measured in turns, so that a busy minute harms both. All
clients use SASL_SSL with SCRAM-SHA-512 and one certificate; they run in processes of their own.

    rates   produce and consume 1 KB with librdkafka; two rounds before the first do not count
    rules   CPU of a small produce with 10 000 access rules, with none and without an authorizer
            (Rookery only)
    logins  p99 of small produces while 200 clients per second log in, and without logins
    busy    p99 of small produces next to 10 clients that send without a pause
    storm   1 000 clients connect at once: the time until all have logged in, failed attempts
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable

from objectparts.figures import Figures
from rich.console import Console
from securityparts.busy import busy
from securityparts.logins import logins
from securityparts.rates import rates
from securityparts.rules import rules
from securityparts.scene import Extent, Scene
from securityparts.storm import storm

PARTS: dict[str, Callable[[Scene], None]] = {
    "rates": rates, "rules": rules, "logins": logins, "busy": busy, "storm": storm,
}  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3, help="that count; medians are shown")
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the records")
    parser.add_argument("--json", action="store_true", help="the figures as JSON, progress aside")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := set(names) - set(PARTS):
        sys.exit(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    figures = Figures(Console(width=150, stderr=arguments.json))
    extent = Extent.quick() if arguments.quick else Extent(rounds=arguments.rounds)
    with Scene(figures, extent) as scene:
        for name in names:
            figures.say(f"{name}: load of the machine {os.getloadavg()[0]:.1f}")
            PARTS[name](scene)
    if arguments.json:
        print(json.dumps(figures.as_json()))
    else:
        figures.show("SASL_SSL, SCRAM-SHA-512: Rookery beside Kafka")


if __name__ == "__main__":
    main()
