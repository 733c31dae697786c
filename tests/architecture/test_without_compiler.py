"""Without a compiler the package still installs and works, and says once that it is slower."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WALK = """
import json, sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from rookery.wire.catalog import apis
    from rookery.wire.codec import decode, encode_bytes
    from rookery.testing.messages import random_message
    from rookery.records.recordcodec import Record, build, read_all
    from rookery.records.columns import decode as to_columns
    from rookery.records.reading import PartitionBatches
    for api in apis().values():
        version = api.versions[-1]
        message = random_message(api.request, version, 1)
        assert decode(api.request, version, encode_bytes(message, version)) == message
    batch = build([Record(b"k", b"v")])
    assert [record.value for record in read_all(batch)] == [b"v"]
    [rows] = to_columns([PartitionBatches("t", 0, batch)])
    assert rows.column("key").to_pylist() == [b"k"]
json.dump({"from": sys.modules["rookery"].__file__, "warnings": [str(w.message) for w in caught]},
          sys.stdout)
"""


@pytest.fixture(scope="module")
def pure(own_processes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as `pip` builds it where the C compiler fails."""
    folder = tmp_path_factory.mktemp("pure")
    source = folder / "source"
    built_here = shutil.ignore_patterns("*.so", "*.c", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", source / "src", ignore=built_here)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*wheel, "--wheel-dir", folder, source],
        check=True,
        capture_output=True,
        env=os.environ | {"CC": "/bin/false", "PYTHONWARNINGS": "ignore"},
    )
    [built] = folder.glob("rookery-*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def run(pure: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", _START, str(pure), *arguments],
        check=False,
        capture_output=True,
        text=True,
    )


# Without the site module there is no editable install in the way; the libraries come back by hand.
_START = f"""
import sys
pure, code = sys.argv[1], sys.argv[2]
sys.path[:0] = [pure, *{[path for path in sys.path if "site-packages" in path]!r}]
sys.argv[:] = ["rookery", *sys.argv[3:]]
exec(code)
"""


def test_no_native_module_is_in_the_wheel(pure: Path) -> None:
    assert (pure / "rookery" / "wire" / "_twin.py").exists()
    assert list(pure.rglob("*.so")) == []


def test_everything_works_without_a_compiler_and_warns_once(pure: Path) -> None:
    done = run(pure, WALK)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["from"].startswith(str(pure))
    [warning] = said["warnings"]
    assert "rookery doctor" in warning


def test_doctor_names_missing_native_modules(pure: Path) -> None:
    done = run(
        pure,
        "import warnings; warnings.simplefilter('ignore')\n"
        "from rookery.cli.main import main; sys.exit(main())",
        "doctor",
        "--json",
    )
    assert done.returncode == 1, done.stderr
    assert "rookery.wire._codec" in done.stdout
    assert "pip install" in done.stdout
