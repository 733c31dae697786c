"""The examples of the README work."""

from __future__ import annotations

import doctest
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_examples_of_the_readme_run() -> None:
    failed, tried = doctest.testfile(str(README), module_relative=False)
    assert tried >= 5
    assert failed == 0


def test_readme_starts_with_the_two_commands() -> None:
    text = README.read_text()
    assert 0 < text.index("make demo") < text.index("make test") < 900
