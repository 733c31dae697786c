"""Prints the measurements of `rookery perf`."""

from __future__ import annotations

from dataclasses import dataclass, field

from rookery.cli.command import print_json
from rookery.cli.output.figures import Speed, quantiles
from rookery.cli.output.tables import open_console


@dataclass(slots=True)
class Measurement:
    """The result of a measurement; times are in milliseconds."""

    what: str
    speed: Speed
    timed: str
    """The operation that was timed."""
    times: list[float] = field(default_factory=list)

    def show(self, *, as_json: bool) -> None:
        """Print it."""
        latencies = quantiles(self.times)
        if as_json:
            times = {name: round(value, 3) for name, value in latencies.items()}
            print_json({"measured": self.what, **self.speed.as_json(), "latency_ms": times})
            return
        console = open_console(highlight=False)
        console.print(f"[bold]{self.what}[/bold]  {self.speed.text()}")
        figures = "  ".join(
            f"{name} [bold]{value:,.2f}[/bold]" for name, value in latencies.items()
        )
        console.print(f"  {self.timed}, in ms: {figures or 'none was timed'}")
