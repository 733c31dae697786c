"""The long form of the crash tests: `python -m tests.crash.long --kills 200 --workers 3`.

With `--backend etcd+s3` or `store+s3` it strikes three brokers that share nothing but those.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from rookery.testing.backends import KINDS, ServerBackend
from rookery.testing.broker import BrokerProcess
from rookery.testing.brokers import BRISK, Hosts
from tests.crash.hosts import BLOWS, wait_until_clean
from tests.crash.killing import blows, ordeal

_KILL_SECONDS: Final = 60.0
"""How long a kill and the check after it may take."""
_END_SECONDS: Final = 3600.0

say: Final = partial(print, flush=True)


def main() -> int:
    """Run it; 0 if every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--durability", choices=("disk", "os"), default="disk")
    parser.add_argument("--backend", choices=("folder", *KINDS), default="folder")
    args = parser.parse_args()
    began = monotonic()
    # Calls of librdkafka can freeze this process (see `tests/frozen.py`).
    faulthandler.dump_traceback_later(_END_SECONDS + args.kills * _KILL_SECONDS, exit=True)
    with tempfile.TemporaryDirectory(prefix="rookery-crash-") as folder:
        strike = _strike_one if args.backend == "folder" else _strike_hosts
        acked = strike(args, Path(folder))
    print(f"{args.kills} kills, {acked} records acknowledged, in {monotonic() - began:.0f} s: well")
    return 0


def _strike_one(args: argparse.Namespace, folder: Path) -> int:
    flags = ("--durability", args.durability)
    with BrokerProcess(folder / "data", workers=args.workers, flags=flags) as broker:
        try:
            return ordeal(broker, blows(args.workers), args.kills, args.seed, say)
        except BaseException:
            print(broker.words()[-5_000:], file=sys.stderr)
            raise


def _strike_hosts(args: argparse.Namespace, folder: Path) -> int:
    with (
        ServerBackend(args.backend) as backend,
        Hosts(
            3,
            store=backend.store("ordeal"),
            cluster=backend.cluster("ordeal"),
            folder=folder,
            flags=BRISK,
        ) as hosts,
    ):
        try:
            acked = ordeal(hosts, BLOWS, args.kills, args.seed, say)
            wait_until_clean(hosts, say)
        except BaseException:
            print(hosts.words(), file=sys.stderr)
            raise
        return acked


if __name__ == "__main__":
    sys.exit(main())
