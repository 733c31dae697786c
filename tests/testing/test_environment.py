"""Python environments that tests install."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rookery.errors import Unavailable
from rookery.testing.environment import Environment, install_environment

_ASK = """
import sys
from pathlib import Path
from rookery.testing.environment import Environment, install_environment

install_environment(Environment("jackdaw", (sys.argv[1],)), Path(sys.argv[2]))
"""
_WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Write a package of one module."""
    path = tmp_path / "jackdaw-1-py3-none-any.whl"
    files = {
        "jackdaw.py": "call = 'tchack'\n",
        "jackdaw-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: jackdaw\nVersion: 1\n",
        "jackdaw-1.dist-info/WHEEL": _WHEEL,
        "jackdaw-1.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _run(python: Path, *words: str) -> str:
    done = subprocess.run([python, *words], capture_output=True, text=True, check=True)
    return done.stdout


def test_concurrent_processes_install_once(wheel: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    ask = [sys.executable, "-c", _ASK, str(wheel), str(cache)]

    askers = [subprocess.Popen(ask, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    messages = [asker.communicate()[1] for asker in askers]

    assert [asker.returncode for asker in askers] == [0, 0]
    assert "".join(messages).count("Installing jackdaw") == 1
    python = install_environment(Environment("jackdaw", (str(wheel),)), cache)
    assert _run(python, "-c", "import jackdaw; print(jackdaw.call)") == "tchack\n"
    assert sorted(path.suffix for path in cache.iterdir()) == ["", ".lock"]


def test_an_environment_has_only_its_packages(wheel: Path, tmp_path: Path) -> None:
    python = install_environment(Environment("jackdaw", (str(wheel),)), tmp_path / "cache")

    program = "import importlib.util as u; print([u.find_spec('rookery'), u.find_spec('pytest')])"
    assert _run(python, "-I", "-c", program) == "[None, None]\n"


def test_failed_installation_is_reported_and_leaves_no_files(tmp_path: Path) -> None:
    missing = str(tmp_path / "jackdaw-1-py3-none-any.whl")

    with pytest.raises(Unavailable, match=r"(?s)exit status 1.*jackdaw"):
        install_environment(Environment("jackdaw", (missing,)), tmp_path / "cache")

    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]
