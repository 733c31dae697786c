"""Prints the result of a demo, as a small picture or as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final, NamedTuple

from rich.console import Console

from rookery.cli.command import print_json
from rookery.cli.demo.audit import PartitionVerdict
from rookery.cli.output.figures import Speed, sparkline
from rookery.cli.output.tables import make_table

_WIDTH: Final = 50
_BAR: Final = 30


class Crash(NamedTuple):
    """How the broker was killed."""

    at_record: int
    """Records that were acknowledged by then."""
    down_seconds: float
    resent_batches: int
    """Batches that the client sent more than once."""


@dataclass(frozen=True, slots=True)
class Summary:
    """All figures of one run."""

    produced: Speed
    consumed: Speed
    crash: Crash
    ticks: list[float]
    """Records acknowledged in a second, tick by tick."""
    tick_seconds: float
    verdicts: list[PartitionVerdict]

    @property
    def is_sound(self) -> bool:
        """Whether every record came back, once, in order, unchanged."""
        return all(verdict.is_sound for verdict in self.verdicts)

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print it."""
        if as_json:
            print_json(self.as_json())
            return
        console.print()
        self._show_time(console)
        self._show_speeds(console)
        self._show_partitions(console)
        console.print(self._sentence())

    def as_json(self) -> dict[str, object]:
        """Return it for scripts."""
        return {
            "sound": self.is_sound,
            "produced": self.produced.as_json(),
            "consumed": self.consumed.as_json(),
            "crash": self.crash._asdict(),
            "partitions": [dataclasses.asdict(verdict) for verdict in self.verdicts],
        }

    def _show_time(self, console: Console) -> None:
        # As many ticks to a sign as make it fit; the gap of the restart stays visible.
        step = max(1, -(-len(self.ticks) // _WIDTH))
        parts = [self.ticks[i : i + step] for i in range(0, len(self.ticks), step)]
        picture = sparkline([sum(part) / len(part) for part in parts])
        console.print(f"  acknowledged over time  [green]{picture}[/green]")
        console.print(f"  {'':<23} one sign is {step * self.tick_seconds:g} s", style="dim")

    def _show_speeds(self, console: Console) -> None:
        most = max(self.produced.records_per_second, self.consumed.records_per_second) or 1.0
        for name, speed in (("written", self.produced), ("read", self.consumed)):
            bar = "█" * max(1, round(_BAR * speed.records_per_second / most))
            rate = f"{speed.records_per_second:>11,.0f} records/s  {speed.mb_per_second:,.0f} MB/s"
            console.print(f"  {name:<8} [cyan]{bar:<{_BAR}}[/cyan] {rate}", highlight=False)

    def _show_partitions(self, console: Console) -> None:
        titles = ("partition", "sent", "read back", "lost", "doubled", "order and checksum")
        table = make_table(titles, right=titles)
        for verdict in self.verdicts:
            same = "[green]the same[/green]" if verdict.is_identical else "[red]different[/red]"
            table.add_row(
                str(verdict.partition),
                f"{verdict.sent:,}",
                f"{verdict.received:,}",
                str(verdict.lost),
                str(verdict.duplicated),
                same,
            )
        console.print(table)

    def _sentence(self) -> str:
        sent = sum(verdict.sent for verdict in self.verdicts)
        if self.is_sound:
            return (
                f"\n[bold green]Nothing lost, nothing doubled[/bold green]: {sent:,} records, a "
                f"kill -9 after {self.crash.at_record:,}, {self.crash.down_seconds:.2f} s down, "
                f"{self.crash.resent_batches} batches sent again."
            )
        lost = sum(verdict.lost for verdict in self.verdicts)
        doubled = sum(verdict.duplicated for verdict in self.verdicts)
        return (
            f"\n[bold red]This must not happen[/bold red]: of {sent:,} records {lost:,} were lost "
            f"and {doubled:,} doubled or out of order. Please report it, with this output."
        )
