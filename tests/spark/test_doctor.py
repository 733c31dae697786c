"""The doctor's report on Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rookery
from rookery.cli.commands import doctor
from rookery.cli.sparkcheck import look_at_spark


def test_working_installation_has_no_findings() -> None:
    findings = {finding.name: finding for finding in doctor.examine() if finding.kind == "spark"}

    assert findings.keys() == {"pyspark", "java", "pyspark_rookery"}
    assert all(finding.is_well for finding in findings.values()), findings
    assert "listed" in findings["pyspark_rookery"].detail


def test_unsuitable_java_has_a_remedy(tmp_path: Path) -> None:
    looks = {look.name: look for look in look_at_spark({"JAVA_HOME": str(tmp_path)})}

    assert f"JAVA_HOME={tmp_path} has no Java" in looks["java"].remedy
    assert "apt-get install" in looks["java"].remedy


# As an editable installation of the finder kind: a hook serves the packages, no folder lists them.
_UNLISTED = """
import importlib.util, json, pathlib, sys
source = pathlib.Path(sys.argv[1])
sys.path[:] = [path for path in sys.path if pathlib.Path(path) != source]
class Finder:
    def find_spec(self, name, path=None, target=None):
        place = source / name / "__init__.py"
        if "." not in name and place.exists():
            folder = [str(place.parent)]
            return importlib.util.spec_from_file_location(
                name, place, submodule_search_locations=folder
            )
sys.meta_path.append(Finder())
from rookery.cli.sparkcheck import look_at_spark
print(json.dumps([list(look) for look in look_at_spark()]))
"""


def test_unlisted_source_has_a_remedy() -> None:
    source = Path(rookery.__file__).parents[1]

    done = subprocess.run(
        [sys.executable, "-c", _UNLISTED, source], capture_output=True, text=True, check=True
    )

    looks = {name: (detail, remedy) for name, detail, remedy in json.loads(done.stdout)}
    detail, remedy = looks["pyspark_rookery"]
    assert detail.startswith("importable, but not listed")
    assert "editable_mode=compat" in remedy


def test_missing_pyspark_is_not_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.cli.sparkcheck.find_spec", lambda name: None)

    [look] = look_at_spark()

    assert "not installed" in look.detail
    assert not look.remedy
