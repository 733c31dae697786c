"""Writes docs/apis.md from the routes: `python -m rookery.broker.apidocs docs/apis.md`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from rookery.broker.registry import Route, routes

_HEAD: Final = """\
# APIs of the broker

Made from the routes by `scripts/docs`; do not edit. What is not listed is not served, and not
advertised in ApiVersions. Produce is advertised from version 0 on, as Kafka does, since some old
clients would not compress otherwise; versions 0 to 2 are refused.

| key | API | versions | what the broker does |
|---:|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    return _HEAD + "".join(_row(key, route) for key, route in routes().items())


def _row(key: int, route: Route) -> str:
    first, last = route.versions.start, route.versions.stop - 1
    versions = str(first) if first == last else f"{first}–{last}"  # noqa: RUF001 (a range's dash)
    says = (route.handle.__doc__ or "").strip().splitlines()[0]
    return f"| {key} | {route.api.name} | {versions} | {says} |\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
