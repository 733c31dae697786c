"""Output of `rookery job`: a bar while it works, then a report; or lines of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rookery.cli.output.figures import size_text
from rookery.clock import stopwatch
from rookery.jobs.report import JobPart, JobReport, JobStep
from rookery.store.prices import Prices

_SHOWN: Final = 20


class JobDisplay:
    """Shows the progress of a job and its result."""

    def __init__(self, job: str, *, is_json: bool, is_quiet: bool) -> None:
        self._job = job
        self._is_json = is_json
        self._is_quiet = is_quiet
        self._began = stopwatch()
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task(job, total=None, text="")
        self._has_bar = not is_json and not is_quiet and sys.stderr.isatty()

    def __enter__(self) -> JobDisplay:
        if self._has_bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def step(self, step: JobStep) -> None:
        """Show the progress."""
        if self._has_bar:
            text = f"{size_text(step.done_bytes)} of {size_text(step.total_bytes)}, {step.text}"
            self._bar.update(
                self._task, completed=step.done_bytes, total=step.total_bytes, text=text
            )
        elif self._is_json and not self._is_quiet:
            self._line({"event": "progress", "job": self._job, **step._asdict()})

    def report(self, report: JobReport) -> None:
        """Describe the result."""
        seconds = stopwatch() - self._began
        if self._is_json:
            event = "plan" if report.is_dry else "report"
            self._line({"event": event, **report.as_json(Prices()), "seconds": round(seconds, 3)})
            return
        for line in plan_text(report) if report.is_dry else report_text(report, seconds):
            print(line)

    def _line(self, value: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()


def plan_text(report: JobReport) -> Iterator[str]:
    """Describe the planned work of a job."""
    plan = report.plan
    yield from _parts(plan.parts, "would")
    yield from _parts(plan.left, "later")
    dollars = plan.requests.dollars(plan.bytes, Prices())
    yield (
        f"{plan.job}: {size_text(plan.bytes)} to read, about {plan.requests.gets:,} GETs and "
        f"{plan.requests.puts:,} PUTs (${dollars:.4f}); nothing was done"
    )


def report_text(report: JobReport, seconds: float) -> Iterator[str]:
    """Describe the result of a job, and its proof."""
    plan = report.plan
    yield (
        f"{plan.job}: {size_text(report.done_bytes)} in {report.slices:,} slices, {seconds:.1f} s"
    )
    for name, fact in report.facts.items():
        yield (
            f"  {name.replace('_', ' ')}: {fact:,}"
            if isinstance(fact, int)
            else f"  {name}: {fact}"
        )
    if report.before is not None and report.after is not None:
        yield f"  before: {report.before.text()}"
        yield f"  after:  {report.after.text()}"
    if plan.left_bytes:
        yield f"  left for the next run: {size_text(plan.left_bytes)}"
    yield from _lines("note", report.notes)
    yield from _lines("wrong", report.problems)
    yield "all is well" if report.is_right else "not all is well"


def _lines(word: str, texts: list[str]) -> Iterator[str]:
    for text in texts[:_SHOWN]:
        yield f"  {word}: {text}"
    if len(texts) > _SHOWN:
        yield f"  … and {len(texts) - _SHOWN:,} more"


def _parts(parts: tuple[JobPart, ...], word: str) -> Iterator[str]:
    for part in parts[:_SHOWN]:
        note = f" ({part.note})" if part.note else ""
        yield f"  {word}: {part.what}, {size_text(part.bytes)}{note}"
    if len(parts) > _SHOWN:
        yield f"  {word}: … and {len(parts) - _SHOWN:,} more"
