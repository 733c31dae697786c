"""`rookery fsck` with running brokers: its output and its exit code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.testing.backends import ServerBackend
from tests.cli.storage import Broker, run

MERGED = ("--rewrite-merge-age-ms", "1")


@pytest.fixture(autouse=True)
def _without_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOKERY_CONFIG", raising=False)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Broker]:
    folder = tmp_path / "data"
    broker = Broker(folder, ["--caretaker", "off"], ["--data", str(folder)])
    with broker.process:
        yield broker


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Broker]:
    store = tmp_path / "objects"
    store.mkdir()
    where = ["--store", f"file://{store}"]
    flags = [*where, "--inline-bytes", "0", "--caretaker", "off"]
    broker = Broker(tmp_path / "data", flags, where)
    with broker.process:
        yield broker


def test_wrong_secret_of_the_store_ends_the_check_at_its_first_request(
    backend: ServerBackend, tmp_path: Path
) -> None:
    wrong = "wrong-secret-of-mine"

    done = run("fsck", "--store", backend.store(tmp_path.name, secret_access_key=wrong))

    message = done.stderr.decode()
    assert (done.returncode, done.stdout) == (1, b"")
    assert "access is refused: check the access key" in message
    assert "attempts" not in message
    assert wrong not in message


def test_a_brokers_folder_is_clean_while_it_runs_and_afterwards(local: Broker) -> None:
    local.produce("birds", 100)
    local.produce("birds", 200, size=1000)
    for args in ([], ["--quick"]):
        code, report = local.fsck(*args)
        assert (code, report["clean"], report["faults"]) == (0, True, [])
        assert report["bytes"] > 200_000
    local.process.stop()
    assert local.fsck()[0] == 0


def test_damage_in_a_journal_is_named(local: Broker, tmp_path: Path) -> None:
    local.produce("birds", 200, size=1000)
    local.process.stop()
    [path] = (tmp_path / "data" / "journal").iterdir()
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)

    code, report = local.fsck()

    assert (code, report["clean"]) == (1, False)
    [fault] = report["faults"]
    assert (fault["kind"], fault["key"]) == ("corrupt", path.name)
    assert (fault["topic"], fault["partition"], fault["base_offset"]) == ("birds", 0, 0)
    assert fault["remedy"]
    # The length is right.
    assert local.fsck("--quick")[0] == 0


def test_missing_object_is_named_in_the_readable_report(stored: Broker, tmp_path: Path) -> None:
    stored.produce("birds", 10)
    code, report = stored.fsck()
    assert (code, report["rows"]) == (0, 1)
    [path] = (tmp_path / "objects/_rookery/default/objects").rglob("*800000")
    path.unlink()

    done = run("fsck", *stored.where, "--quick")

    assert done.returncode == 1
    text = done.stdout.decode()
    assert "missing    _rookery/default/objects/" in text
    assert "topic birds, partition 0, offsets 0 to 9: it is not there" in text
    assert "→ restore it from a copy" in text
    assert "not clean: 1 missing" in text


def test_a_log_in_a_store_is_clean_while_a_caretaker_works(tmp_path: Path) -> None:
    store = tmp_path / "objects"
    store.mkdir()
    where = ["--store", f"file://{store}"]
    flags = [*where, "--inline-bytes", "0", *MERGED, "--delete-delay-ms", "1"]
    broker = Broker(tmp_path / "data", flags, where)
    with broker.process:
        for _ in range(4):
            broker.produce("birds", 50)
            code, report = broker.fsck()
            assert code == 0, report["faults"]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--data", "nowhere"], "there is no folder"),
        (["--data", "."], "has no cluster log (cluster.sqlite)"),
        (["--store", "file:///does/not/exist"], "there is no such folder"),
        (["--store", "file:///", "--namespace", "_rookery"], "namespace '_rookery'"),
        (["--config", "missing.toml"], "missing.toml"),
    ],
)
def test_invalid_arguments_are_reported_with_exit_code_2(args: list[str], text: str) -> None:
    done = run("fsck", *args)
    assert done.returncode == 2
    assert text in done.stderr.decode()


def test_fsck_creates_nothing_at_a_missing_location(tmp_path: Path) -> None:
    run("fsck", "--data", "nowhere")
    run("fsck", "--store", f"file://{tmp_path}/nothing")
    assert list(tmp_path.iterdir()) == []
