"""The contents of a packed environment, and how changes of them are detected."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rookery.errors import ConfigError
from rookery.spark.environment.contents import ArchiveContents, carrier_of


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on Python's path with a package that is installed there, and a module next to it."""
    record = tmp_path / "birdtools-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: birdtools\nVersion: 1.0\n")
    (record / "RECORD").write_text("birdcalls/__init__.py,sha256=aa,5\n")
    (record / "top_level.txt").write_text("birdcalls\n")
    for package in ("birdcalls", "nests"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("x = 1")
    (tmp_path / "eggs.py").write_text("x = 1")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def _contents(*also: str) -> ArchiveContents:
    return ArchiveContents.of(extras=("etcd",), also=also)


def test_packages_and_modules_are_distinguished(site: Path) -> None:
    contents = _contents("birdtools", "eggs", "nests", "json")

    assert contents.packages["birdtools"].version == "1.0"
    assert contents.modules == ("eggs", "nests")
    files = dict(contents.files())
    assert files["birdcalls/__init__.py"] == site / "birdcalls" / "__init__.py"
    assert files["nests/__init__.py"] == site / "nests" / "__init__.py"
    assert files["eggs.py"] == site / "eggs.py"
    assert "rookery/spark/environment/contents.py" in files
    assert "pyspark_rookery/__init__.py" in files
    with pytest.raises(ConfigError, match="no-such-thing is not installed"):
        _contents("no_such_thing")


def test_module_is_assigned_to_its_package(site: Path) -> None:
    assert carrier_of("birdcalls.songs") == "birdtools"
    assert carrier_of("nests.twigs") == "nests"


def test_fingerprint_is_stable(site: Path) -> None:
    before = _contents("birdtools", "nests").fingerprint()
    cached = site / "nests" / "__pycache__"
    cached.mkdir()
    (cached / "__init__.cpython-399.pyc").write_bytes(b"compiled")

    assert _contents("nests", "birdtools").fingerprint() == before
    assert _contents("nests").fingerprint() != before
    assert ArchiveContents.of(extras=(), also=("nests", "birdtools")).fingerprint() != before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("birdtools-1.0.dist-info/RECORD", "birdcalls/__init__.py,sha256=bb,5\n"),
        ("birdtools-1.0.dist-info/METADATA", "Name: birdtools\nVersion: 1.1\n"),
        ("nests/__init__.py", "x = 22"),
        ("nests/twigs.py", ""),
    ],
)
def test_fingerprint_changes_with_the_packed_files(site: Path, file: str, text: str) -> None:
    before = _contents("birdtools", "nests").fingerprint()
    (site / file).write_text(text)

    assert _contents("birdtools", "nests").fingerprint() != before


def test_changed_source_of_the_same_size_is_found_by_its_time(site: Path) -> None:
    os.utime(site / "eggs.py", ns=(1, 1))
    before = _contents("eggs").fingerprint()
    os.utime(site / "eggs.py", ns=(2, 2))

    assert _contents("eggs").fingerprint() != before
