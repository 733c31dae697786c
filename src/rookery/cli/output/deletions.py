"""Prints what was deleted, and what did not exist."""

from __future__ import annotations

from collections.abc import Mapping

from rookery.cli.command import print_json


def print_deletions(deleted: Mapping[str, bool], *, as_json: bool) -> None:
    """Print the names, with whether each was there."""
    if as_json:
        print_json({"deleted": [name for name, was_there in deleted.items() if was_there]})
        return
    for name, was_there in deleted.items():
        print(f"{name}: {'deleted' if was_there else 'was not there'}")
