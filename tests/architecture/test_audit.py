"""`scripts/audit` says what it could not look up, and decides only if it is asked to."""

from __future__ import annotations

import json
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Row = dict[str, object]

CLEAN: Row = {"name": "clean", "version": "1.0", "vulns": []}
SICK: Row = {
    "name": "sick",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": [], "description": ""}],
}
UNKNOWN: Row = {"name": "unknown", "skip_reason": "Dependency not found on PyPI: unknown (1.0)"}
OURS: Row = {"name": "ours", "skip_reason": "distribution marked as editable"}


def load_script() -> Any:
    """Import the script, whose name has no suffix."""
    loader = SourceFileLoader("audit", str(ROOT / "scripts" / "audit"))
    spec = spec_from_loader("audit", loader)
    assert spec is not None
    module = module_from_spec(spec)
    # Without a `__pycache__` next to the scripts.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


AUDIT = load_script()


def lines_for(*rows: Row) -> list[str]:
    return list(AUDIT.describe(AUDIT.read_report({"dependencies": rows, "fixes": []})))


def run_with(monkeypatch: pytest.MonkeyPatch, code: str, *flags: str) -> int:
    """Run the script with a program in the place of pip-audit."""
    run_audit = AUDIT.run_audit
    command = [sys.executable, "-c", code]
    monkeypatch.setattr(AUDIT, "run_audit", lambda: run_audit(command))
    status: int = AUDIT.main(flags)
    return status


def printing(*rows: Row) -> str:
    return f"print({json.dumps({'dependencies': rows, 'fixes': []})!r})"


def test_clean_packages_are_counted() -> None:
    assert lines_for(CLEAN, OURS) == ["1 packages looked up, 0 advisories"]


def test_an_advisory_names_package_and_remedy() -> None:
    assert lines_for(CLEAN, SICK) == [
        "ADVISORY PYSEC-1: sick 2.0, fixed in 2.1",
        "2 packages looked up, 1 advisories",
    ]


def test_packages_without_an_answer_are_named() -> None:
    assert lines_for(CLEAN, UNKNOWN)[0] == "NOT AUDITED: unknown"


def test_a_service_that_knows_no_package_does_not_count_as_clean() -> None:
    [line] = lines_for(UNKNOWN, UNKNOWN, OURS)

    assert "does not answer" in line


@pytest.mark.parametrize(
    "rows", [(CLEAN, SICK), (CLEAN, UNKNOWN), (UNKNOWN,)], ids=["advisory", "partly", "away"]
)
def test_only_the_strict_form_fails(rows: tuple[Row, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        assert run_with(patch, printing(*rows)) == 0
    with monkeypatch.context() as patch:
        assert run_with(patch, printing(*rows), "--strict") == 1


def test_the_strict_form_accepts_clean_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_with(monkeypatch, printing(CLEAN, OURS), "--strict") == 0


def test_a_program_that_fails_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(monkeypatch, "raise SystemExit('no connection')") == 0

    printed = capsys.readouterr()
    assert "no connection" in printed.err
    assert "NOT AUDITED" in printed.out
