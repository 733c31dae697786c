"""`scripts/prose` catches each construction that it lists, and the repository is clean."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def load_script() -> Any:
    """Import the script, whose name has no suffix."""
    loader = SourceFileLoader("prose", str(ROOT / "scripts" / "prose"))
    spec = spec_from_loader("prose", loader)
    assert spec is not None
    module = module_from_spec(spec)
    # Without a `__pycache__` next to the scripts.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


PROSE = load_script()


def findings(root: Path) -> list[Any]:
    return [*PROSE.findings(root)]


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, "utf-8")


def test_the_lists_of_exceptions_stay_short() -> None:
    assert len(PROSE.ALLOWED) <= 10


@pytest.mark.parametrize("rule", PROSE.RULES, ids=lambda rule: rule.example)
def test_each_rule_catches_its_example_everywhere(rule: Any, tmp_path: Path) -> None:
    name = "_".join(rule.example.rstrip(".").lower().split(". ")[-1].split())
    write(tmp_path, "src/rookery/a.py", f'"""{rule.example}"""\n')
    write(tmp_path, "src/rookery/b.py", f"x = 1  # {rule.example}\n")
    write(tmp_path, "src/rookery/c.py", f'def f(): raise ValueError(f"{rule.example} {{1}}")\n')
    write(tmp_path, "src/rookery/d.pyx", f"cdef int x  # {rule.example}\n")
    write(tmp_path, "bench/e.py", f'"""{rule.example}"""\nx = 1  # {rule.example}\n')
    write(tmp_path, "docs/page.md", f"# Page\n\n- {rule.example}\n")
    write(tmp_path, "tests/test_a.py", f"def test_{name}(): ...\n")

    paths = {finding.path for finding in findings(tmp_path) if finding.advice == rule.advice}

    assert paths == {
        "src/rookery/a.py",
        "src/rookery/b.py",
        "src/rookery/c.py",
        "src/rookery/d.pyx",
        "bench/e.py",
        "docs/page.md",
        "tests/test_a.py",
    }


def test_a_finding_names_file_line_phrase_and_advice(tmp_path: Path) -> None:
    write(tmp_path, "docs/page.md", "# Page\n\nThe broker reads it and\nis\ntold the offset.\n")

    (finding,) = findings(tmp_path)

    assert str(finding).startswith("docs/page.md:4: 'is told': write \"learns\"")


def test_a_phrase_may_span_lines_of_a_comment(tmp_path: Path) -> None:
    write(tmp_path, "src/rookery/a.py", "x = 1\n# One must let\n# go of it.\n")

    assert [(finding.line, finding.phrase) for finding in findings(tmp_path)] == [(2, "let go")]


@pytest.mark.parametrize(
    "text",
    [
        "The replica lags behind the leader.",
        "The broker lists clients who logged in.",
        "What is a pin?",
        "Call `nobody` with ``shall``.",
        "```\nNobody is told.\n```",
    ],
)
def test_plain_english_and_code_pass(text: str, tmp_path: Path) -> None:
    write(tmp_path, "docs/page.md", f"{text}\n")

    assert not findings(tmp_path)


def test_the_changelog_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, "CHANGELOG.md", "Nobody is told.\n")

    assert not findings(tmp_path)


def test_messages_of_tests_are_data(tmp_path: Path) -> None:
    write(tmp_path, "tests/test_a.py", 'USER = "nobody is told of it"\n')

    assert not findings(tmp_path)


def test_a_long_sentence_is_found_in_docstrings_alone(tmp_path: Path) -> None:
    sentence = "word " * 41
    write(tmp_path, "src/rookery/a.py", f'"""{sentence}"""\n')
    write(tmp_path, "docs/page.md", sentence)

    assert [finding.advice for finding in findings(tmp_path)] == [PROSE.TOO_LONG]


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ('def close(): "Close it."', True),
        ('class GroupId: "A group id."', True),
        ('limit = 1\n"The limit."', True),
        ('"`rookery topics list`."', True),
        ('"`rookery topics list`: lists `topics`."', False),
        ('def close(): "Release the lease."', False),
        ('limit = 1\n"In bytes."', False),
    ],
)
def test_a_docstring_that_repeats_its_name_is_found(
    code: str, is_found: bool, tmp_path: Path
) -> None:
    write(tmp_path, "src/rookery/a.py", f"{code}\n")

    assert [finding.advice for finding in findings(tmp_path)] == [PROSE.REPEATS_NAME] * is_found


def test_an_allowed_text_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "docs/page.md", "Nobody is\ntold.\n")
    monkeypatch.setitem(PROSE.ALLOWED, "Nobody is told.", "a quotation")

    assert not findings(tmp_path)
