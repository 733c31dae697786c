"""A process that keeps its log open closes it when it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rookery.testing.wait import PATIENCE_SECONDS
from tests.direct.logs import Cluster, create, send, values

_KEEPS = """
import sys
from rookery.direct.blockinglog import open_shared
from rookery.direct.place import ClusterAddress
from rookery.direct.blockingreader import reader

place = ClusterAddress(store=sys.argv[1])
log = open_shared(place)
log.run(log.log.numbers())  # it joins the cluster for that
reader(place)
print(len(log.log.state.brokers.processes))
"""


def test_shared_log_is_closed_when_the_process_exits(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t")
        send(broker, "t", values(10))

    done = subprocess.run(
        [sys.executable, "-c", _KEEPS, cluster.store],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )

    assert (done.stdout, done.stderr) == ("1\n", "")
    with cluster.log as log:
        assert not log.log.state.brokers.processes
