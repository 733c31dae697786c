"""A real etcd on the loopback interface: one member, or several.

    with EtcdCluster(3) as etcd:
        log = open_log(etcd.url("mine"))

Members have their own ports and folders, and are gone after the block. The program is `etcd`,
of Debian's package etcd-server.
"""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rookery.errors import Unavailable
from rookery.testing.certificates import Certificates
from rookery.testing.etcdpeers import PeerGate
from rookery.testing.folder import WorkFolder
from rookery.testing.ports import HOST, free_port
from rookery.testing.server import Servers, TestServer
from rookery.testing.wait import wait_until

_CALL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """Settings that may differ from etcd's defaults."""

    quota_bytes: int | None = None
    """The maximum size of a member's database."""
    election_ms: int = 1000
    """After how long without a leader the others choose another; the heartbeat is a tenth."""
    certificates: Certificates | None = None
    """With these, clients must use TLS …"""
    client_certificates: bool = False
    """… and show a certificate of their own."""

    def flags(self) -> list[str]:
        """Return the flags of a member for these settings."""
        flags = [f"--election-timeout={self.election_ms}"]
        flags.append(f"--heartbeat-interval={self.election_ms // 10}")
        if self.quota_bytes is not None:
            flags.append(f"--quota-backend-bytes={self.quota_bytes}")
        if self.certificates is not None:
            files = self.certificates
            flags += [f"--cert-file={files.server}", f"--key-file={files.server}"]
            if self.client_certificates:
                flags += ["--client-cert-auth", f"--trusted-ca-file={files.ca}"]
        return flags


class EtcdMember(TestServer):
    """One member: start, stop, kill, pause, cut off; start again with the same data."""

    def __init__(self, name: str, folder: Path, settings: EtcdSettings) -> None:
        super().__init__(f"etcd {name}", folder / "etcd.log", WorkFolder(folder))
        self.name = name
        self.port = free_port()
        self.gate = PeerGate()
        """The relay for the other members' connections to this one."""
        self.peers: Sequence[EtcdMember] = (self,)
        """All members of the cluster."""
        self._peer_port = free_port()
        self._folder = folder
        self._settings = settings

    @property
    def endpoint(self) -> str:
        """Return `host:port` for clients; it stays the same over restarts."""
        return f"{HOST}:{self.port}"

    @property
    def peer_url(self) -> str:
        """Return where other members find this one."""
        return f"http://{HOST}:{self.gate.port}"

    def launch(self) -> None:
        """Start the member's process without waiting for it."""
        if not self.is_running:
            self.gate.open(self._peer_port)
        super().launch()

    def stop(self) -> int | None:
        """Let the member shut down in order; kill it if it takes too long."""
        status = super().stop()
        self.gate.close()
        return status

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL)."""
        super().kill()
        self.gate.close()

    def call(self, path: str, **body: object) -> dict[str, Any]:
        """Call etcd's JSON API, as in `call("maintenance/status")`.

        Raises:
            Unavailable: it does not answer, or refuses.
        """
        connection = self._connection()
        try:
            connection.request("POST", f"/v3/{path}", json.dumps(body))
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(f"{self.name} does not answer: {error}") from error
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise Unavailable(f"{self.name} refuses {path}: {answer}")
        return answer

    def id(self) -> int:
        """Return the member's id."""
        return int(self.call("maintenance/status")["header"]["member_id"])

    def leader_id(self) -> int:
        """Return the id of the leader as this member knows it, 0 if it knows none."""
        try:
            return int(self.call("maintenance/status").get("leader", 0))
        except Unavailable:
            return 0

    def _is_ready(self) -> bool:
        """Return whether the member answers and knows a leader."""
        return self.leader_id() != 0

    def _command(self) -> list[str]:
        scheme = "http" if self._settings.certificates is None else "https"
        return [
            find_program(),
            f"--name={self.name}",
            f"--data-dir={self._folder / 'data'}",
            f"--listen-client-urls={scheme}://{self.endpoint}",
            f"--advertise-client-urls={scheme}://{self.endpoint}",
            f"--listen-peer-urls=http://{HOST}:{self._peer_port}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            "--initial-cluster=" + ",".join(f"{peer.name}={peer.peer_url}" for peer in self.peers),
            "--logger=zap",
            "--log-level=warn",
            *self._settings.flags(),
        ]

    def _connection(self) -> http.client.HTTPConnection:
        files = self._settings.certificates
        if files is None:
            return http.client.HTTPConnection(HOST, self.port, timeout=_CALL_SECONDS)
        context = ssl.create_default_context(cafile=str(files.ca))
        context.load_cert_chain(files.client)
        return http.client.HTTPSConnection(HOST, self.port, timeout=_CALL_SECONDS, context=context)


class EtcdCluster(Servers[EtcdMember]):
    """An etcd of one member or of several."""

    def __init__(
        self, count: int = 1, settings: EtcdSettings | None = None, *, folder: Path | None = None
    ) -> None:
        """Choose ports; start nothing.

        Args:
            count: the number of members.
            settings: what they are started with.
            folder: where to keep everything; if not given, a new one that `close` removes.
        """
        self.settings = settings or EtcdSettings()
        home = WorkFolder(folder, "etcd-")
        names = [f"member-{number}" for number in range(1, count + 1)]
        self.members = [EtcdMember(name, home.path / name, self.settings) for name in names]
        for member in self.members:
            member.peers = self.members
        super().__init__(self.members, home)

    def url(self, name: str = "rookery", **options: object) -> str:
        """Return the URL of a cluster log in this etcd."""
        endpoints = ",".join(member.endpoint for member in self.members)
        query = "&".join(f"{option}={value}" for option, value in options.items())
        return f"etcd://{endpoints}/{name}" + (f"?{query}" if query else "")

    def leader(self) -> EtcdMember:
        """Return the member that leads, waiting for an election if one is under way.

        Those that are stopped, paused or cut off are not asked.
        """
        leaders = wait_until(lambda: list(islice(self._leaders(), 1)), "a leader of etcd")
        return leaders[0]

    def _leaders(self) -> Iterator[EtcdMember]:
        awake = [m for m in self.members if m.is_running and not m.is_paused]
        for member in (candidate for candidate in awake if not candidate.gate.is_cut):
            if (leader := member.leader_id()) and leader == member.id():
                yield member

    def followers(self) -> list[EtcdMember]:
        """Return all members except the leader."""
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def cut(self, member: EtcdMember) -> None:
        """Cut a member off from the others, both ways; clients reach all of them."""
        number = member.id()
        member.gate.cut()
        for other in self.members:
            other.gate.refuse(number)

    def mend(self) -> None:
        """End `cut`."""
        for member in self.members:
            member.gate.mend()


def find_program() -> str:
    """Return where `etcd` is.

    Raises:
        Unavailable: it is not installed.
    """
    if (program := shutil.which("etcd")) is None:
        raise Unavailable("there is no etcd on the PATH: apt-get install etcd-server")
    return program
