"""The packed environment: what is in it, and that it works without anything else of this host."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from rookery.cli.main import main
from rookery.errors import ConfigError
from rookery.spark.environment.contents import ArchiveContents
from rookery.spark.environment.pack import PackedArchive, pack
from rookery.spark.environment.packages import closure, files_of
from rookery.spark.environment.submit import Submission
from rookery.spark.tuning.choice import SETTING
from tests.spark.standalone import bare_python


@pytest.fixture(scope="module")
def packed(own_spark: None, tmp_path_factory: pytest.TempPathFactory) -> PackedArchive:
    folder = tmp_path_factory.mktemp("packed")
    return pack(folder / "rookery.tgz", ArchiveContents.of(extras=("etcd", "spark")))


def test_packed_environment_works_without_the_original(
    packed: PackedArchive, tmp_path: Path
) -> None:
    with tarfile.open(packed.path) as archive:
        archive.extractall(tmp_path / "moved", filter="data")
    program = (
        "import sys, rookery, pyarrow, grpc, numpy, pandas, obstore\n"
        "from rookery.native import report\n"
        "from rookery.records import columns\n"
        "assert all(status.is_compiled for status in report()), report()\n"
        "print(sys.path)\n"
    )

    done = subprocess.run(
        [tmp_path / "moved" / "bin" / "python", "-c", program],
        env={"PATH": f"{bare_python(tmp_path / 'bin')}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "site-packages" not in done.stdout


def test_archive_has_the_expected_contents(packed: PackedArchive) -> None:
    with tarfile.open(packed.path) as archive:
        names = set(archive.getnames())

    assert {"./bin/python", "./lib/pyspark_rookery/__init__.py", "./lib/rookery/py.typed"} <= names
    assert {"rookery", "pyarrow", "numpy", "grpcio"} <= packed.packages.keys()
    # Spark's own packages come with Spark.
    assert not {"pyspark", "py4j"} & packed.packages.keys()
    assert not [name for name in names if "/lib/pyarrow/tests/" in name]
    assert not [name for name in names if "flight" in name and "/lib/pyarrow/" in name]
    assert not [name for name in names if "/lib/numpy/" in name and "/tests/test_" in name]
    tag = sys.implementation.cache_tag
    assert f"./lib/rookery/__pycache__/__init__.{tag}.pyc" in names


def test_packages_provided_by_the_hosts_are_omitted(packed: PackedArchive, tmp_path: Path) -> None:
    names = ("pyarrow", "pandas")
    contents = ArchiveContents.of(extras=("etcd", "spark"), provided=names, without=("uvloop",))
    small = pack(tmp_path / "small.tgz", contents)

    assert small.packages.keys().isdisjoint({"pyarrow", "pandas", "numpy", "pytz"})
    assert small.provided.keys() >= {"pyarrow", "pandas", "numpy"}
    assert packed.packages.keys() - {"uvloop"} == small.packages.keys() | small.provided.keys()
    assert small.size < packed.size / 2


def test_different_python_is_refused_with_a_remedy(packed: PackedArchive, tmp_path: Path) -> None:
    with tarfile.open(packed.path) as archive:
        archive.extract("./bin/python", tmp_path, filter="data")

    done = subprocess.run(
        [tmp_path / "bin" / "python", "-c", "pass"],
        env={"PATH": str(_only_a_shell(tmp_path / "path"))},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert f"no Python {sys.version_info.major}.{sys.version_info.minor} on" in done.stderr
    assert "--with-python" in done.stderr


def _only_a_shell(folder: Path) -> Path:
    folder.mkdir()
    for program in ("dirname", "hostname"):
        (folder / program).symlink_to(f"/usr/bin/{program}")
    return folder


def test_missing_package_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no-such-package is not installed: pip install no-such"):
        closure(["no_such.package"])


def test_dependencies_are_found_with_extras() -> None:
    plain = closure(["pyiceberg"])
    more = closure(["pyiceberg[sql-sqlite]"])

    assert "pydantic" in plain
    assert "sqlalchemy" not in plain
    assert "sqlalchemy" in more
    assert "pydantic" not in closure(["pyiceberg"], left_out={"pydantic"})


def test_editable_package_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"rookery .* editable: install it from a wheel"):
        files_of(closure(["rookery"])["rookery"])


def test_only_tarballs_are_accepted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.zip: Spark unpacks only"):
        pack(tmp_path / "x.zip", ArchiveContents.of())


def test_submission_unpacks_once(tmp_path: Path) -> None:
    archive = tmp_path / "small.tgz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(__file__, arcname="bin/python")
    submission = Submission(Path("job.py"), archive, "spark://h:1", folder=tmp_path)

    submission.prepare()
    first = (tmp_path / "environment" / "bin" / "python").stat().st_ino
    submission.prepare()

    assert (tmp_path / "environment" / "bin" / "python").stat().st_ino == first
    os.utime(archive, ns=(1, 1))
    submission.prepare()
    assert (tmp_path / "environment" / "bin" / "python").stat().st_ino != first


def test_submission_does_not_overwrite_a_foreign_folder(
    packed: PackedArchive, tmp_path: Path
) -> None:
    (tmp_path / "environment").mkdir()

    with pytest.raises(ConfigError, match=r"environment is in the way"):
        Submission(Path("job.py"), packed.path, "spark://h:1", folder=tmp_path).prepare()


@pytest.mark.usefixtures("own_spark")
def test_dry_run_prints_the_command(
    packed: PackedArchive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["spark", "submit", "--master", "spark://h:1", "--archive", str(packed.path)]
    command += ["--conf", "spark.a=b", "--dry-run", "job.py", "birds", "--fast"]

    assert main(command) == 0

    said = capsys.readouterr().out
    assert "tar -xzf" in said
    assert "PYSPARK_PYTHON=./environment/bin/python" in said
    assert f"{packed.path}#environment" in said
    assert "--conf spark.a=b" in said
    assert said.rstrip().endswith("job.py birds --fast")


@pytest.mark.usefixtures("own_spark")
def test_printed_recipe_makes_the_same_environment(tmp_path: Path) -> None:
    config = tmp_path / "rookery.toml"
    submission = Submission(
        Path("job.py"),
        Path("a.tar.gz"),
        "spark://h:1",
        settings={SETTING: "early-connect"},
        folder=tmp_path,
        config=config,
    )
    ours = {**os.environ, "PYSPARK_DRIVER_PYTHON": "jupyter", "PYTHONPATH": "/mine with space"}
    line = shlex.split(submission.recipe(ours).splitlines()[1])
    at = line.index(submission.command()[0])
    assert line[at:] == submission.command()
    told = "import json, os; print(json.dumps(dict(os.environ)))"
    shown = subprocess.run(
        [*line[:at], sys.executable, "-c", told], env=ours, capture_output=True, check=True
    )
    environ = json.loads(shown.stdout)
    assert {**environ, "LC_CTYPE": ""} == {**submission.environ(ours), "LC_CTYPE": ""}
    assert environ["ROOKERY_SPARK_MASTER"] == "spark://h:1"
    assert environ["ROOKERY_CONFIG"] == str(config)
    assert environ["PYTHONPATH"].endswith("/rookery/spark/tuning/early:/mine with space")
    plain = Submission(Path("job.py"), Path("a.tar.gz"), "spark://h:1")
    assert plain.environ(ours)["PYTHONPATH"] == ours["PYTHONPATH"]


def test_settings_are_written_as_a_spark_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "settings"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert "spark.python.unix.domain.socket.enabled true" in lines
    assert not any("daemon" in line for line in lines)
    assert main(["spark", "settings", "--tuning", "worker-daemon"]) == 0
    tuned = capsys.readouterr().out.splitlines()
    assert [line for line in tuned if line not in lines] == [
        "spark.python.daemon.module rookery.spark.tuning.daemon"
    ]
