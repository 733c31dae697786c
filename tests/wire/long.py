"""The compiled codec against its twin, for any number of cases.

python -m tests.wire.long --cases 2000000 --seed 1
"""

from __future__ import annotations

import argparse
import sys
from random import Random
from time import monotonic

from rookery.testing.messages import random_message
from rookery.wire import _codec, _twin
from rookery.wire.codec import table_of
from rookery.wire.message import Message
from tests.wire.test_codec import MESSAGES, mutate, outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    random, done, started = Random(arguments.seed), 0, monotonic()
    while done < arguments.cases:
        for cls, version in MESSAGES:
            done += check(cls, version, random)
        if sys.stderr.isatty():
            print(f"\rwire: {done:,} cases", end="", file=sys.stderr, flush=True)
    spent = monotonic() - started
    print(f"\rwire: {done:,} cases, seed {arguments.seed}, {spent:.0f} s: no difference")
    return 0


def check(cls: type[Message], version: int, random: Random) -> int:
    """Compare one good message and eight broken ones."""
    table = table_of(cls, version)
    message: Message = random_message(cls, version, random)
    parts = _codec.write(table, message)
    assert parts == _twin.write(table, message)
    wire = b"".join(parts)
    for _ in range(8):
        broken = mutate(wire, random)
        assert outcome(_codec, cls, version, broken) == outcome(_twin, cls, version, broken), (
            f"{cls.__name__} v{version}: {broken.hex()}"
        )
    return 9


if __name__ == "__main__":
    raise SystemExit(main())
