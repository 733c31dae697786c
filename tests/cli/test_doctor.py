"""`rookery doctor` reports what is missing, with a remedy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rookery.cli.commands import doctor
from rookery.cli.main import main
from rookery.native import NativeStatus

_PYPROJECT = tomllib.loads(
    (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
)


def test_doctor_checks_every_compiled_module() -> None:
    built = {module["name"] for module in _PYPROJECT["tool"]["setuptools"]["ext-modules"]}

    findings = {finding.name for finding in doctor.examine() if finding.kind == "native"}

    assert findings >= built


def test_doctor_checks_every_required_library() -> None:
    lines = _PYPROJECT["project"]["dependencies"]
    needed = {line.partition(">=")[0].partition("[")[0] for line in lines}

    assert {library.package for library in doctor._LIBRARIES} == needed


def test_doctor_json_agrees_with_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])

    answer = json.loads(capsys.readouterr().out)
    assert answer["well"] is (code == 0)
    assert {"python", "platform", "library"} <= {finding["kind"] for finding in answer["findings"]}
    assert all(finding["well"] is (finding["remedy"] == "") for finding in answer["findings"])


def test_doctor_table_shows_versions(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])

    text = capsys.readouterr().out
    assert sys.version.split()[0] in text
    assert "uvloop" in text


def test_a_missing_library_has_a_remedy() -> None:
    library = doctor._Library("no_such_module_here", "no-such-package", "nothing")

    finding = doctor._examine_library(library)

    assert not finding.is_well
    assert finding.remedy == "pip install no-such-package"


@pytest.mark.parametrize("has_compiler", [True, False])
def test_a_twin_in_use_has_a_remedy(monkeypatch: pytest.MonkeyPatch, has_compiler: bool) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/cc" if has_compiler else None)
    status = NativeStatus("rookery.wire._codec", "rookery.wire._twin", "No module named x")

    finding = doctor._examine_native(status)

    assert not finding.is_well
    assert "rookery.wire._twin does its work (No module named x)" in finding.detail
    assert finding.remedy.endswith("pip install --force-reinstall --no-binary rookery rookery")
    assert ("gcc" in finding.remedy) is not has_compiler


# Refuses one module, as if it had not been built or installed, in a fresh interpreter.
_WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {0!r} or name == {0!r}:
            raise ModuleNotFoundError("No module named " + repr(name))
sys.meta_path.insert(0, Refuse())
from rookery.cli.main import main
sys.exit(main(["doctor", *{1!r}]))
"""


def _run_without(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = _WITHOUT.format(module, list(arguments))
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("module", ["rookery.wire._codec", "rookery.records._kernel", "uvloop"])
def test_doctor_reports_a_missing_module(module: str) -> None:
    done = _run_without(module, "--json")

    assert (done.returncode, done.stderr) == (1, "")
    sick = [load for load in json.loads(done.stdout)["findings"] if not load["well"]]
    assert module in {finding["name"] for finding in sick}


def test_doctor_works_without_rich() -> None:
    done = _run_without("rich")

    assert (done.returncode, done.stderr) == (1, "")
    assert "library rich" in done.stdout
    assert "pip install rich" in done.stdout
