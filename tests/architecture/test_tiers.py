"""The rules that assign tests to tiers name fixtures that exist, and no server escapes them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import WorkerInteractor  # type: ignore[import-untyped] # it has no types

from rookery import testing
from tests import tiers
from tests.budget import SECONDS, WAITED, charge, waited_seconds

TESTS = Path(__file__).parents[1]
FIXTURES = tiers.FAULTS | tiers.PEERS | frozenset().union(*tiers.SERVERS.values())
SERVERS = {
    "EtcdCluster",
    "KafkaCluster",
    "KafkaServer",
    "KroxyliciousServer",
    "SeaweedServer",
    "ServerBackend",
}
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
    # A fixture of that name moves the tests that ask for it.
    return {name for name in HEAVY if name in {*names, function.name} or f"'{name}'" in marks}


def test_rules_name_fixtures_that_exist() -> None:
    text = "\n".join(path.read_text("utf-8") for path in TESTS.rglob("*.py"))

    assert {name for name in FIXTURES if f"def {name}(" not in text} == set()


def test_the_names_of_servers_are_classes_of_the_kit() -> None:
    kit = "".join(path.read_text("utf-8") for path in Path(testing.__file__).parent.glob("*.py"))

    assert {
        name for name in SERVERS if not re.search(rf"^class {name}\b", kit, re.MULTILINE)
    } == set()


def test_tests_that_start_their_own_server_declare_it() -> None:
    folders = {
        path.parent
        for path in TESTS.rglob("conftest.py")
        if "def run_with_faults(own_victim: None)" in path.read_text("utf-8")
    }
    silent = [
        f"{path.relative_to(TESTS)}:{function.lineno} {function.name}"
        for path in TESTS.rglob("test_*.py")
        if not any(folder in path.parents for folder in folders)
        and 'usefixtures("own_' not in path.read_text("utf-8").partition("\ndef ")[0]
        for function in functions(path)
        if starts_server(function) and not asks_for(function)
    ]

    assert silent == []


@pytest.mark.parametrize(
    ("seconds", "waited", "outcome"),
    [
        (SECONDS - 0.1, 0, "passed"),
        (SECONDS + 0.1, 0, "failed"),
        (SECONDS + 1, 1.1, "passed"),
        (SECONDS + 1, 0.9, "failed"),
    ],
)
def test_a_test_over_its_budget_fails(
    request: pytest.FixtureRequest, seconds: float, waited: float, outcome: str
) -> None:
    report = pytest.TestReport(
        request.node.nodeid, ("", 0, ""), {}, "passed", None, "call", duration=seconds
    )
    request.node.stash[WAITED] = waited

    charge(request.node, report)

    assert report.outcome == outcome


def test_pressure_and_steal_count_as_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pressure").mkdir()
    pressure = "some avg10=1.00 avg60=2.00 avg300=3.00 total=2500000\nfull avg10=0.00 total=0\n"
    (tmp_path / "pressure" / "cpu").write_text(pressure, "ascii")
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7 600 0 0\ncpu0 1 2 3\n", "ascii")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "sysconf", {"SC_CLK_TCK": 100}.__getitem__)

    assert waited_seconds(tmp_path) == 2.5 + 3.0


def test_machine_that_reports_no_pressure_is_never_overloaded(tmp_path: Path) -> None:
    assert waited_seconds(tmp_path) == 0


class Scheduled:
    """The configuration of a worker of pytest-xdist, as far as the hooks read it."""

    def getoption(self, name: str) -> None:
        """All tiers run."""
        assert name == "--tier"

    def getvalue(self, name: str) -> bool:
        """Tests are scheduled by their groups."""
        return name == "loadgroup"


@pytest.mark.parametrize("order", [1, -1])
def test_groups_are_assigned_before_the_scheduler_reads_them(
    request: pytest.FixtureRequest, order: int
) -> None:
    def with_server(kafka: None) -> None: ...

    def without_server() -> None: ...

    file = request.node.parent
    items = [
        pytest.Function.from_parent(file, name=name, callobj=function)
        for name, function in [("1", with_server), ("2", without_server), ("3", with_server)]
    ]
    hooks = pytest.PytestPluginManager()
    ours = request.config.pluginmanager.getplugin(str(TESTS / "conftest.py"))
    for plugin in [ours, object.__new__(WorkerInteractor)][::order]:
        hooks.register(plugin)

    hooks.hook.pytest_collection_modifyitems(
        session=request.session, config=Scheduled(), items=items
    )

    groups = {item.name: item.nodeid.rpartition("@")[2] for item in items}
    assert groups == {"1": "kafka", "2": "tests/architecture/test_tiers.py", "3": "kafka"}


HOOKS = "from tests.conftest import pytest_addoption, pytest_collection_modifyitems"
GROUPED = """
import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def kafka():
    Path(f"started-{os.getpid()}").touch()


@pytest.mark.parametrize("number", range(8))
def test_uses_the_server(kafka, number):
    assert number >= 0
"""


def test_tests_that_share_a_server_run_on_one_worker(tmp_path: Path, own_processes: None) -> None:
    """Two workers of pytest-xdist confirm what the test above finds in one process."""
    (tmp_path / "conftest.py").write_text(HOOKS, "utf-8")
    for name in ("test_first.py", "test_second.py"):
        (tmp_path / name).write_text(GROUPED, "utf-8")
    options = ["-q", "-p", "no:cacheprovider", "--numprocesses", "2", "--dist", "loadgroup"]
    options += ["--import-mode", "importlib", "--override-ini", "markers=kafka: needs Kafka"]

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "16 passed" in run.stdout
    assert len(list(tmp_path.glob("started-*"))) == 1
