"""The long form: `python -m tests.faults.history.long --seconds 300 --fault all --target sqlite`.

It breaks things under load for a given time, and reports whether every promise was kept. After a
finding, the history stays in the folder of `--folder`.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from tests.faults.history.nemesis import ALL, FAULTS, RESTART, SLEEPER
from tests.faults.history.observer import StuckError
from tests.faults.history.plants.sitecustomize import PLANTS
from tests.faults.history.producers import PAUSE
from tests.faults.history.run import PROTOCOLS, Result, Run, Settings
from tests.faults.history.targets import SQLITE, TARGETS, running

RECOVERY_SECONDS: Final = 20.0
"""The most seconds after a fault until the next record is acknowledged."""
_END_SECONDS: Final = 3600.0
"""How long a run may take beyond its own time: for the start, the end and the check."""
_SHOWN: Final = 20
_PLANTS: Final = Path(__file__).with_name("plants")

say: Final = partial(print, flush=True)


def main() -> int:
    """Run it a given number of times; return 0 if every promise was kept each time."""
    args = _arguments()
    faults = FAULTS if args.fault == ALL else (args.fault,)
    os.environ[PAUSE] = args.pause
    if args.plant:
        os.environ |= {"PYTHONPATH": str(_PLANTS), "ROOKERY_TEST_PLANT": args.plant}
    is_well = True
    for number in range(args.runs):
        settings = Settings(
            seed=args.seed + number,
            seconds=args.seconds,
            faults=faults,
            gap=args.gap,
            readers=tuple(args.readers),
            copiers=tuple(args.copiers),
        )
        # Calls of librdkafka can freeze this process (see `tests/frozen.py`).
        faulthandler.dump_traceback_later(args.seconds + _END_SECONDS, exit=True)
        is_well &= _run(args.target, args.fault, settings, args.folder, keeps=args.keep)
    return 0 if is_well else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--fault", choices=(*FAULTS, RESTART, SLEEPER, ALL), default=ALL)
    parser.add_argument("--target", choices=TARGETS, default=SQLITE)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--gap", type=float, default=10, help="seconds between faults, about")
    parser.add_argument("--pause", default="0.2", help="seconds a producer pauses, at most")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--readers", nargs="*", choices=PROTOCOLS, default=list(PROTOCOLS))
    parser.add_argument("--copiers", nargs="*", choices=PROTOCOLS, default=["classic", "consumer"])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--plant", choices=PLANTS, help="break the brokers: it must be found")
    parser.add_argument("--keep", action="store_true", help="keep the history in any case")
    return parser.parse_args()


def _run(kind: str, fault: str, settings: Settings, parent: Path, *, keeps: bool) -> bool:
    """Run once; return whether every promise was kept, and otherwise keep the history."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="rookery-history-", dir=parent))
    began = monotonic()
    said = f"{kind}, {fault}, {settings.seconds:.0f} s, seed {settings.seed}"
    say(f"{said}: begins")
    with running(kind, folder) as target:
        try:
            problems, summary = _judged(Run(target, settings, folder / "history.jsonl").go())
        except (StuckError, TimeoutError, AssertionError) as error:
            problems, summary = [str(error)], "no end"
        (folder / "brokers.log").write_text(target.words())
    for problem in problems[:_SHOWN]:
        say(f"  {problem}")
    say(f"{said}: {summary}, in {monotonic() - began:.0f} s: {'bad' if problems else 'well'}")
    if problems or keeps:
        say(f"  see {folder}")
    else:
        shutil.rmtree(folder)
    return not problems


def _judged(result: Result) -> tuple[list[str], str]:
    problems = [str(finding) for finding in result.findings]
    if result.recovery > RECOVERY_SECONDS:
        problems.append(f"stuck: no record was acknowledged for {result.recovery:.1f} s")
    return problems, str(result)


if __name__ == "__main__":
    sys.exit(main())
