"""What a job is going to do, how it is told to go about it, and what it has done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rookery.errors import ConfigError
from rookery.jobs.proof import Proof
from rookery.store.prices import Prices


class JobPart(NamedTuple):
    """One thing that there is to do."""

    what: str
    bytes: int
    note: str = ""

    def as_json(self) -> dict[str, object]:
        """Return it for scripts."""
        return self._asdict()


class Requests(NamedTuple):
    """What is asked of the store, about."""

    gets: int = 0
    puts: int = 0

    def dollars(self, size: int, prices: Prices) -> float:
        """Return what it costs, with so many bytes read."""
        asked = self.gets * prices.get + self.puts * prices.put
        return asked / 1000 + size / 1e9 * prices.read_gb


_NONE: Final = Requests()


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a run does, and what its budget leaves for the next."""

    job: str
    parts: tuple[JobPart, ...] = ()
    left: tuple[JobPart, ...] = ()
    requests: Requests = _NONE
    facts: dict[str, object] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes to be read."""
        return sum(part.bytes for part in self.parts)

    @property
    def left_bytes(self) -> int:
        """Bytes for later runs."""
        return sum(part.bytes for part in self.left)

    def as_json(self, prices: Prices) -> dict[str, object]:
        """Return it for scripts."""
        return {
            "job": self.job,
            "bytes": self.bytes,
            "parts": [part.as_json() for part in self.parts],
            "left_bytes": self.left_bytes,
            "left": [part.as_json() for part in self.left],
            "gets": self.requests.gets,
            "puts": self.requests.puts,
            "dollars": round(self.requests.dollars(self.bytes, prices), 6),
            **self.facts,
        }


class JobStep(NamedTuple):
    """How far a run has come."""

    done_bytes: int
    total_bytes: int
    text: str = ""


Progress = Callable[[JobStep], None]
"""Is told after every slice."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """How a job is to go about it."""

    dry_run: bool = False
    """Plan, and do nothing."""
    max_bytes: int = 0
    """Read no more than this; 0: without bound. What is left is for the next run."""
    proof: bool = True
    """Read everything again, and compare it with what was there before."""
    progress: Progress = lambda _: None

    def __post_init__(self) -> None:
        if self.max_bytes < 0:
            raise ConfigError(f"max_bytes={self.max_bytes}: must not be negative; 0 is no bound")

    def choose(self, sizes: Iterable[int]) -> int:
        """Return how many of some things, one after the other, fit the budget."""
        left, count = self.max_bytes, 0
        for size in sizes:
            left -= size
            if self.max_bytes and left < 0:
                break
            count += 1
        return count

    def check_budget(self, job: str, what: str, size: int) -> None:
        """Refuse a budget that the next thing does not fit: run after run would do nothing.

        Raises:
            ConfigError: it does not fit; the text says how much it needs.
        """
        if 0 < self.max_bytes < size:
            raise ConfigError(
                f"{job}: max_bytes={self.max_bytes} is too little for what comes next, {what}: "
                f"allow {size} bytes or more (--max-bytes)"
            )


@dataclass(slots=True)
class JobReport:
    """What a run has done."""

    plan: JobPlan
    is_dry: bool = False
    done_bytes: int = 0
    slices: int = 0
    before: Proof | None = None
    after: Proof | None = None
    facts: dict[str, object] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """What is wrong; none if all is well."""
    notes: list[str] = field(default_factory=list)
    """What is not wrong, and should be known: what others have changed meanwhile."""

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def check(self) -> None:
        """Compare what was there with what is there now."""
        if self.before is None or self.after is None or self.before == self.after:
            return
        self.problems.append(
            f"before: {self.before.text()}; after: {self.after.text()}: they should be the same; "
            "run rookery fsck"
        )

    def as_json(self, prices: Prices) -> dict[str, object]:
        """Return it for scripts."""
        found = self.plan.as_json(prices)
        if self.is_dry:
            return {**found, "dry_run": True}
        proofs = {"before": self.before, "after": self.after}
        return {
            **found,
            "done_bytes": self.done_bytes,
            "slices": self.slices,
            **{name: one.as_json() for name, one in proofs.items() if one is not None},
            **self.facts,
            "notes": self.notes,
            "problems": self.problems,
            "ok": self.is_right,
        }
