"""The command with broker nodes: one port, and several processes that are one node."""

from __future__ import annotations

import signal

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from rookery.testing.ports import HOST, free_port
from rookery.testing.servedbroker import ServedBroker
from tests.proxy.test_command import run_proxy


def test_workers_are_one_node(brokers: list[ServedBroker]) -> None:
    listen = f"{HOST}:{free_port()}"
    with run_proxy(
        *("--upstream", ",".join(broker.bootstrap for broker in brokers)),
        *("--listen", listen, "--nodes", "proxy", "--node-id", "7"),
        *("--workers", "2", "--http-listen", ""),
    ) as (process, info):
        assert info["nodes"] == {"default": {"7": listen}}
        seen = [
            AdminClient({"bootstrap.servers": listen}).list_topics(timeout=20).brokers
            for _ in range(6)
        ]
        assert {tuple(each) for each in seen} == {(7,)}
        producers = [Producer({"bootstrap.servers": listen, "acks": "all"}) for _ in range(4)]
        for number, producer in enumerate(producers):
            producer.produce("workers", b"%d" % number)
            assert producer.flush(20) == 0
        process.send_signal(signal.SIGTERM)

        assert process.wait(20) == 0
