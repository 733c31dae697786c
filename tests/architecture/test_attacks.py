"""docs/attacks.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "attacks.md").read_text("utf-8")


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE))

    def exists(path: str, name: str) -> bool:
        file = ROOT / "tests" / path
        return file.is_file() and re.search(rf"\bdef {name}\(", file.read_text("utf-8")) is not None

    assert len(named) > 80
    assert not sorted(f"{path}::{name}" for path, name in named if not exists(path, name))


def test_every_attack_has_a_test() -> None:
    rows = re.findall(r"^\| (?!attack |---)(.*?) \| (.*) \|$", PAGE, re.MULTILINE)

    assert len(rows) > 40
    assert not [attack for attack, tests in rows if "::test_" not in tests]
