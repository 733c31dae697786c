"""Servers of tests, with Python's own HTTP server as an example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.errors import Unavailable
from rookery.testing import probe
from rookery.testing.folder import WorkFolder
from rookery.testing.ports import HOST, free_port
from rookery.testing.server import Servers, TestServer


class _Web(TestServer):
    def __init__(self, folder: Path | None = None, *flags: str) -> None:
        home = WorkFolder(folder, "web-")
        super().__init__("the web server", home.path / "web.log", home)
        self.port = free_port()
        self.folder = home.path
        self._flags = flags

    def _command(self) -> list[str]:
        bind = ["--bind", HOST, "--directory", str(self.folder)]
        return [sys.executable, "-m", "http.server", *bind, *self._flags, str(self.port)]

    def _is_ready(self) -> bool:
        return probe.is_open(self.port)


@pytest.fixture
def web() -> Iterator[_Web]:
    with _Web() as server:
        yield server


def test_server_runs_within_its_block_and_ends_after_it() -> None:
    with _Web() as web:
        assert probe.is_open(web.port)

    assert not probe.is_open(web.port)
    assert not web.is_running
    assert not web.folder.exists()


def test_a_given_folder_is_kept(tmp_path: Path) -> None:
    with _Web(tmp_path / "deep" / "web") as web:
        pass

    assert web.log.exists()


def test_second_start_is_refused_and_the_first_continues(web: _Web) -> None:
    with pytest.raises(RuntimeError, match=f"the web server runs already, as process {web.pid}"):
        web.start()

    assert probe.is_open(web.port)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_ended_server_restarts_on_its_port(web: _Web, how: str) -> None:
    first = web.pid
    getattr(web, how)()
    with pytest.raises(RuntimeError, match="the web server is not running: start it first"):
        web.pause()

    web.start()

    assert web.pid != first
    assert probe.is_open(web.port)


def test_paused_server_is_stopped_in_order(web: _Web) -> None:
    web.pause()

    status = web.stop()

    assert status == -15
    assert not web.is_paused
    assert web.stop() is None


def test_server_that_ends_while_starting_shows_its_output() -> None:
    web = _Web(None, "--nonsense")
    with pytest.raises(
        Unavailable,
        match=r"(?s)the web server ended with status 2 before it was ready; .*--nonsense",
    ):
        web.start()

    assert not web.is_running
    web.close()


def test_several_servers_all_start_or_none_remains(tmp_path: Path) -> None:
    members = [_Web(tmp_path / "sound"), _Web(tmp_path / "faulty", "--nonsense")]
    together = Servers(members, WorkFolder(tmp_path))
    with pytest.raises(Unavailable, match="ended with status 2"):
        together.start()

    assert not any(member.is_running for member in members)


def test_only_stopped_servers_of_several_are_started(tmp_path: Path) -> None:
    members = [_Web(tmp_path / "one"), _Web(tmp_path / "two")]
    with Servers(members, WorkFolder(tmp_path)) as together:
        first, second = (member.pid for member in members)
        members[1].kill()

        together.start()

        assert members[0].pid == first
        assert members[1].pid != second


def test_words_of_an_earlier_start_are_not_the_last_ones(tmp_path: Path) -> None:
    with _Web(tmp_path) as web:
        web.log.write_text("earlier\n")
        web.kill()
        web.start()

        assert "earlier" not in web.last_words()
        assert "earlier" in web.log.read_text()
