"""A small asyncio client for any Kafka cluster; the guide is docs/guide/client.md.

This package exports the names that most programs need. Each module has more.
"""

from __future__ import annotations

from rookery.client.admin import NewTopic as NewTopic
from rookery.client.client import Client as Client
from rookery.client.configs import ResourceType as ResourceType
from rookery.client.fetch import FetchSettings as FetchSettings
from rookery.client.fetch import Isolation as Isolation
from rookery.client.produce.producer import Producer as Producer
from rookery.client.settings import ACKS_ALL as ACKS_ALL
from rookery.client.settings import ACKS_LEADER as ACKS_LEADER
from rookery.client.settings import ACKS_NONE as ACKS_NONE
from rookery.client.settings import ClientSettings as ClientSettings
from rookery.client.settings import ProducerSettings as ProducerSettings
from rookery.client.settings import Sasl as Sasl
from rookery.model.offset import EARLIEST as EARLIEST
from rookery.model.offset import LATEST as LATEST
from rookery.model.offset import CommittedOffset as CommittedOffset
from rookery.model.partition import TopicPartition as TopicPartition
from rookery.records.recordcodec import Record as Record
from rookery.security.tls import ClientTls as ClientTls
