"""Compares the kernel with its twin on any number of cases.

Run `python -m tests.records.long --cases 2000000`; a failure prints the case as hex.
"""

from __future__ import annotations

import argparse

from tests.records.samples import check_many

_ROUND = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    done = 0
    while done < args.cases:
        done += check_many(min(_ROUND, args.cases - done), args.seed + done)
        print(f"\r{done} cases agree", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
