"""The plan, the options, the progress and the report of a job, as its user sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rookery.errors import ConfigError
from rookery.jobs.proof import Proof
from rookery.store.prices import Prices


class JobPart(NamedTuple):
    """One piece of work: a row of the plan."""

    what: str
    """As readable text: a topic and partition, with offsets or a file."""
    bytes: int
    """The number of bytes to read for it."""
    note: str = ""

    def as_json(self) -> dict[str, object]:
        """Return it for scripts."""
        return self._asdict()


class Requests(NamedTuple):
    """The approximate number of store requests."""

    gets: int = 0
    puts: int = 0

    def dollars(self, size: int, prices: Prices) -> float:
        """Return the cost, including `size` bytes of reads."""
        # Prices of requests are per thousand.
        requests = (self.gets * prices.get + self.puts * prices.put) / 1000
        return requests + size / 1e9 * prices.read_gb


_NONE: Final = Requests()


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The work of a run, and the work that its budget leaves to the next run."""

    job: str
    parts: tuple[JobPart, ...] = ()
    left: tuple[JobPart, ...] = ()
    requests: Requests = _NONE
    facts: dict[str, object] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The number of bytes to read."""
        return sum(part.bytes for part in self.parts)

    @property
    def left_bytes(self) -> int:
        """The number of bytes left to later runs."""
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
    """The progress of a run, after a slice of its work."""

    done_bytes: int
    total_bytes: int
    text: str = ""


Progress = Callable[[JobStep], None]
"""Called after every slice."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """The options of a run."""

    dry_run: bool = False
    """Plan only, and change nothing."""
    max_bytes: int = 0
    """The maximum number of bytes to read; 0: no limit. The rest is left to the next run."""
    proof: bool = True
    """Read everything again, and compare it with the state before."""
    progress: Progress = lambda _: None

    def __post_init__(self) -> None:
        if self.max_bytes < 0:
            raise ConfigError(f"max_bytes={self.max_bytes}: must not be negative; 0 means no limit")

    def choose(self, sizes: Iterable[int]) -> int:
        """Return how many consecutive items fit the budget."""
        left, count = self.max_bytes, 0
        for size in sizes:
            left -= size
            if self.max_bytes and left < 0:
                break
            count += 1
        return count

    def check_budget(self, job: str, what: str, size: int) -> None:
        """Reject a budget that is too small for the next item: no run would ever make progress.

        Raises:
            ConfigError: the item does not fit; the text has the size that it needs.
        """
        if 0 < self.max_bytes < size:
            raise ConfigError(
                f"{job}: max_bytes={self.max_bytes} is too small for the next item, {what}: "
                f"allow {size} bytes or more (--max-bytes)"
            )


@dataclass(slots=True)
class JobReport:
    """The result of a run."""

    plan: JobPlan
    is_dry: bool = False
    done_bytes: int = 0
    slices: int = 0
    before: Proof | None = None
    after: Proof | None = None
    facts: dict[str, object] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Empty on success."""
    notes: list[str] = field(default_factory=list)
    """Notes that are not problems, such as concurrent changes by others."""

    @property
    def is_right(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def check(self) -> None:
        """Compare the proofs before and after."""
        if self.before is None or self.after is None or self.before == self.after:
            return
        self.problems.append(
            f"before: {self.before.text()}; after: {self.after.text()}: they should be the same; "
            "run rookery fsck"
        )

    def as_json(self, prices: Prices) -> dict[str, object]:
        """Return it for scripts."""
        fields = self.plan.as_json(prices)
        if self.is_dry:
            return {**fields, "dry_run": True}
        proofs = {"before": self.before, "after": self.after}
        return {
            **fields,
            "done_bytes": self.done_bytes,
            "slices": self.slices,
            **{name: proof.as_json() for name, proof in proofs.items() if proof is not None},
            **self.facts,
            "notes": self.notes,
            "problems": self.problems,
            "ok": self.is_right,
        }
