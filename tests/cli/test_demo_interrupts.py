"""A demo that is interrupted, at any moment, leaves neither processes nor files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.cli.demo.childprocess import ChildProcess
from rookery.cli.demo.demofolder import DemoFolder, run_in_folder
from rookery.testing.broker import wait_gone
from rookery.testing.wait import wait_until
from tests.cli.running import command

ENDLESS = "100M"
ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
# As a broker's caretaker does, this one notices the end of its parent, and creates a file then.
CARETAKER = """
import os, sys
print(os.getpid(), flush=True)
sys.stdin.read()
os.makedirs(os.path.join(sys.argv[1], "data"), exist_ok=True)
"""
BROKER = """
import subprocess, sys
command = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
subprocess.Popen(
    command, stdin=subprocess.PIPE, stdout=sys.stderr, start_new_session=True
).wait()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which demos create theirs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


class Server:
    """Writes until it is ended, and is then interrupted itself."""

    def __init__(self, folder: Path, number: signal.Signals) -> None:
        self._file = folder / "written"
        self._number = number
        self.has_ended = False

    def end(self) -> None:
        signal.raise_signal(self._number)
        self._file.touch()
        self.has_ended = True


@pytest.mark.parametrize("number", ENDING)
def test_signal_ends_the_work_and_removes_the_folder(
    temporary: Path, number: signal.Signals
) -> None:
    handlers = [signal.getsignal(each) for each in ENDING]

    def work(folder: DemoFolder) -> None:
        (folder.path / "file").touch()
        signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt):
        run_in_folder(work)

    assert list(temporary.iterdir()) == []
    assert [signal.getsignal(each) for each in ENDING] == handlers


@pytest.mark.parametrize("number", ENDING)
def test_signal_during_the_creation_of_the_folder_is_delivered_afterwards(
    temporary: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, calls = tempfile.mkdtemp, list[DemoFolder]()

    def interrupted(prefix: str) -> str:
        path = make(prefix=prefix)
        signal.raise_signal(number)
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", interrupted)

    with pytest.raises(KeyboardInterrupt):
        run_in_folder(calls.append)

    assert calls == []
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", ENDING)
def test_signal_during_the_removal_does_not_stop_it(
    temporary: Path, number: signal.Signals
) -> None:
    servers: list[Server] = []

    def work(folder: DemoFolder) -> None:
        servers.extend(folder.add(Server(folder.path, number)) for _ in range(2))

    with pytest.raises(KeyboardInterrupt):
        run_in_folder(work)

    assert [server.has_ended for server in servers] == [True, True]
    assert list(temporary.iterdir()) == []


def test_ignored_signal_stays_ignored(temporary: Path) -> None:
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run_in_folder(lambda _: signal.raise_signal(signal.SIGHUP))
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, earlier)

    assert list(temporary.iterdir()) == []


def test_folder_is_removed_after_the_children_of_a_killed_process(temporary: Path) -> None:
    def work(folder: DemoFolder) -> int:
        broker = folder.add(ChildProcess(folder.path / "broker.log"))
        broker.launch([sys.executable, "-c", BROKER, CARETAKER, str(folder.path)])
        return int(wait_until(lambda: broker.log.read_text("utf-8")))

    caretaker = run_in_folder(work)

    wait_gone(caretaker)
    assert list(temporary.iterdir()) == []


def _has(pattern: str) -> Callable[[Path, Path], bool]:
    return lambda folder, _output: any(folder.glob(pattern))


def _prints(words: str) -> Callable[[Path, Path], bool]:
    return lambda _folder, output: words in output.read_text("utf-8")


@pytest.mark.usefixtures("own_victim")
@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize(
    ("records", "is_moment"),
    [
        pytest.param(ENDLESS, _has("*"), id="folder"),
        pytest.param(ENDLESS, _has("*/broker.log"), id="launch"),
        pytest.param(ENDLESS, _has("*/data"), id="start"),
        pytest.param(ENDLESS, _prints("serves at"), id="service"),
        pytest.param("200k", _prints("kill -9"), id="crash"),
        pytest.param("200k", _prints("serves again"), id="restart"),
    ],
)
def test_interrupted_demo_leaves_nothing(
    tmp_path: Path, number: signal.Signals, records: str, is_moment: Callable[[Path, Path], bool]
) -> None:
    folder, output = tmp_path / "temporary", tmp_path / "output"
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
    with (
        output.open("wb") as file,
        subprocess.Popen(
            command("demo", "--records", records),
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
        ) as process,
    ):
        wait_until(lambda: is_moment(folder, output) or process.poll() is not None)
        process.send_signal(number)

    said = output.read_text("utf-8")
    # On a busy machine, a short demo can end before the signal comes.
    assert process.returncode == 130 or (records != ENDLESS and "Nothing lost" in said), said
    assert "Traceback" not in said
    assert not _mentions(str(folder))
    assert list(folder.iterdir()) == []


def _mentions(text: str) -> list[str]:
    """The processes whose command line has a text in it."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in entry.read_bytes():
                pids.append(entry.parent.name)
        except OSError:
            continue  # it has just ended
    return pids
