"""A kit for testing against Rookery or a real Kafka.

docs/api.md lists the public names; all other modules serve Rookery's own tests and benchmarks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.exports import lazy_exports

if TYPE_CHECKING:
    from rookery.broker.settings import BrokerSettings
    from rookery.testing.broker import BrokerProcess
    from rookery.testing.certificates import Certificates
    from rookery.testing.clock import ManualClock, SeededRandom
    from rookery.testing.etcd import EtcdCluster, EtcdSettings
    from rookery.testing.kafka import KafkaCluster, KafkaServer
    from rookery.testing.messages import random_message
    from rookery.testing.ports import free_port
    from rookery.testing.properties import KafkaSettings
    from rookery.testing.registry import RegistryServer
    from rookery.testing.seaweed import SeaweedServer
    from rookery.testing.servedbroker import ServedBroker
    from rookery.testing.virtualtime import run_virtually
    from rookery.testing.wait import wait_until, wait_until_async

__all__ = [
    "BrokerProcess",
    "BrokerSettings",
    "Certificates",
    "EtcdCluster",
    "EtcdSettings",
    "KafkaCluster",
    "KafkaServer",
    "KafkaSettings",
    "ManualClock",
    "RegistryServer",
    "SeaweedServer",
    "SeededRandom",
    "ServedBroker",
    "free_port",
    "random_message",
    "run_virtually",
    "wait_until",
    "wait_until_async",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "rookery.broker.settings": ["BrokerSettings"],
            "rookery.testing.broker": ["BrokerProcess"],
            "rookery.testing.certificates": ["Certificates"],
            "rookery.testing.clock": ["ManualClock", "SeededRandom"],
            "rookery.testing.etcd": ["EtcdCluster", "EtcdSettings"],
            "rookery.testing.kafka": ["KafkaCluster", "KafkaServer"],
            "rookery.testing.messages": ["random_message"],
            "rookery.testing.ports": ["free_port"],
            "rookery.testing.properties": ["KafkaSettings"],
            "rookery.testing.registry": ["RegistryServer"],
            "rookery.testing.seaweed": ["SeaweedServer"],
            "rookery.testing.servedbroker": ["ServedBroker"],
            "rookery.testing.virtualtime": ["run_virtually"],
            "rookery.testing.wait": ["wait_until", "wait_until_async"],
        },
    )
