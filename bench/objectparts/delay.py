"""The test kit's delaying proxy as a process that counts: `delay.py PORT --put-ms 50 --get-ms 20`.

A line on its standard input is answered with how many requests there were, by kind, as the stub
does. It ends with its standard input.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from sys import path

path.insert(0, str(Path(__file__).parents[1]))

from objectparts.s3stub import tell_counts
from rookery.net.loop import run_loop
from rookery.testing.s3proxy import Delays, S3Proxy


async def _serve(port: int, delays: Delays) -> None:
    async with S3Proxy(port, delays=delays) as proxy:
        print(json.dumps({"endpoint": proxy.endpoint}), flush=True)
        await tell_counts(proxy.requests)


def main() -> None:
    """Serve until the standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int, help="where the S3 server listens")
    parser.add_argument("--put-ms", type=float, default=0.0)
    parser.add_argument("--get-ms", type=float, default=0.0)
    arguments = parser.parse_args()
    run_loop(_serve(arguments.port, Delays(arguments.put_ms, arguments.get_ms)))


if __name__ == "__main__":
    main()
