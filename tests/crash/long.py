"""The long form of the crash tests: `python -m tests.crash.long --kills 200 --workers 3`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import monotonic

from rookery.testing.broker import BrokerProcess
from tests.crash.killing import ordeal


def main() -> int:
    """Run it; 0 if every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--durability", choices=("disk", "os"), default="disk")
    args = parser.parse_args()
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="rookery-crash-") as folder:
        flags = ("--durability", args.durability)
        with BrokerProcess(Path(folder) / "data", workers=args.workers, flags=flags) as broker:
            try:
                acked = ordeal(broker, args.kills, args.seed, partial(print, flush=True))
            except BaseException:
                print(broker.words()[-5_000:], file=sys.stderr)
                raise
    print(f"{args.kills} kills, {acked} records acknowledged, in {monotonic() - began:.0f} s: well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
