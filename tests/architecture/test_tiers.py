"""The rules that assign tests to tiers name fixtures that exist, and no server escapes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiers
from tests.budget import SECONDS, charge

TESTS = Path(__file__).parents[1]
FIXTURES = tiers.FAULTS | tiers.PEERS | frozenset().union(*tiers.SERVERS.values())
SERVERS = {"KafkaServer", "KafkaCluster", "SeaweedServer", "Backend"}
HEAVY = tiers.FAULTS | tiers.PEERS


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    text = path.read_text("utf-8")
    # Parsing takes most of the time: a file that names no server cannot start one.
    tree = ast.parse(text if any(name in text for name in SERVERS) else "")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def starts_server(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id in SERVERS for call in calls)


def asks_for(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    names = {argument.arg for argument in function.args.args}
    marks = " ".join(map(ast.unparse, function.decorator_list))
    return {name for name in HEAVY if name in names or f"'{name}'" in marks}


def test_rules_name_fixtures_that_exist() -> None:
    text = "\n".join(path.read_text("utf-8") for path in TESTS.rglob("*.py"))

    assert {name for name in FIXTURES if f"def {name}(" not in text} == set()


def test_tests_that_start_their_own_server_declare_it() -> None:
    silent = [
        f"{path.relative_to(TESTS)}:{function.lineno} {function.name}"
        for path in TESTS.rglob("test_*.py")
        if not f"tests/{path.relative_to(TESTS)}".startswith(tiers.FAULT_FOLDERS)
        and 'usefixtures("own_' not in path.read_text("utf-8").partition("\ndef ")[0]
        for function in functions(path)
        if starts_server(function) and not asks_for(function)
    ]

    assert silent == []


@pytest.mark.parametrize(
    ("seconds", "outcome"), [(SECONDS - 0.1, "passed"), (SECONDS + 0.1, "failed")]
)
def test_a_test_over_its_budget_fails(
    request: pytest.FixtureRequest, seconds: float, outcome: str
) -> None:
    report = pytest.TestReport(
        request.node.nodeid, ("", 0, ""), {}, "passed", None, "call", duration=seconds
    )

    charge(request.node, report)

    assert report.outcome == outcome
