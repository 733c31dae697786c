"""The whole state, and `apply`, which applies an entry to it.

    entry ──► its writer counts? ──no──► void
                    │ yes
                    └──► each event in turn ──► an outcome for its proposer

Outcomes go into a rolling digest that entries carry, so that replicas detect differences: see
`digest.py` and `cluster/digestcheck.py`.

The handlers of events are in files of rules: `topicrules.py`, `logrules.py`, `grouprules.py`, …
Each names the parts of the state that its rules depend on. Those of the cluster and its brokers are
methods of `State`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rookery.cluster.entry import Entry
from rookery.cluster.events import brokerevents
from rookery.cluster.state.brokers import Brokers
from rookery.cluster.state.digest import advance
from rookery.cluster.state.groups import Groups
from rookery.cluster.state.objects import Objects
from rookery.cluster.state.outcome import OK
from rookery.cluster.state.outcome import AppendOutcome as AppendOutcome  # noqa: PLC0414 (offered here, too)
from rookery.cluster.state.outcome import EntryOutcome as EntryOutcome  # noqa: PLC0414
from rookery.cluster.state.outcome import Outcome as Outcome  # noqa: PLC0414
from rookery.cluster.state.rules import (
    grouprules,
    importrules,
    logrules,
    pinrules,
    securityrules,
    sinkrules,
    tokenrules,
    topicrules,
    txnrules,
)
from rookery.cluster.state.security import Security
from rookery.cluster.state.sinks import Sinks
from rookery.cluster.state.topics import Topics
from rookery.cluster.state.txns import Transactions
from rookery.errors import Corrupt, ErrorCode
from rookery.wire.message import Message

FEATURE_LEVEL: Final = 3
"""The newest rules that this program knows. Each change to the behaviour of `apply` needs the next
level: see docs/designs/0010-digests-and-upgrades.md. A rule that changed has a constant next to it,
the first level at which it holds."""
ONE_REGISTRATION: Final = 2
"""The first feature level at which an entry registers at most one process."""


class State:
    """The complete state that brokers agree on."""

    def __init__(self) -> None:
        self.applied = 0
        self.digest = 0
        self.cluster_id = ""
        self.feature_level = 0
        self.brokers = Brokers()
        self.topics = Topics()
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.next_producer_id = 0
        self.objects = Objects()
        self.groups = Groups()
        self.transactions = Transactions()
        self.sinks = Sinks()
        self.security = Security()

    def apply(self, number: int, entry: Entry, events: list[Message]) -> EntryOutcome:
        """Apply one entry; it must be the next.

        Raises:
            Corrupt: the entry cannot be applied by this program; the process must stop.
        """
        if number != self.applied + 1:
            raise Corrupt(f"entry {number} of the cluster log comes after entry {self.applied}")
        self.applied = number
        done = EntryOutcome(
            number,
            is_void=False,
            outcomes=[],
            grown=[],
            marked=[],
            ended=[],
            moved=[],
            dropped=[],
            claims_changed=[],
        )
        if not self._counts(entry, events):
            return done._replace(is_void=True)
        for event in events:
            done.outcomes.append(self._handlers[type(event)](self, entry, event, done))
        self.digest = advance(self.digest, self.feature_level, number, done.outcomes)
        return done

    def is_foreign(self, entry: Entry) -> bool:
        """Whether the writer of an entry had the log of another cluster open."""
        return bool(entry.cluster and self.cluster_id) and entry.cluster != self.cluster_id

    def _counts(self, entry: Entry, events: list[Message]) -> bool:
        if self.is_foreign(entry):
            return False
        if entry.incarnation:
            return self.brokers.take(entry.incarnation, entry.sequence, entry.stamp_ms)
        return all(isinstance(event, _WITHOUT_WRITER) for event in events)

    # The cluster and its brokers.

    def _cluster_created(
        self, _entry: Entry, event: brokerevents.ClusterCreated, _done: EntryOutcome
    ) -> Outcome:
        if not self.cluster_id:
            self.cluster_id = event.cluster_id
            self._raise_level(event.feature_level)
        return Outcome(ErrorCode.NONE, self.cluster_id)

    def _level_raised(
        self, _entry: Entry, event: brokerevents.FeatureLevelRaised, _done: EntryOutcome
    ) -> Outcome:
        self._raise_level(event.feature_level)
        return OK

    def _raise_level(self, level: int) -> None:
        if level > FEATURE_LEVEL:
            raise Corrupt(
                f"the cluster has feature level {level}, this program knows {FEATURE_LEVEL}; "
                "start a newer Rookery"
            )
        self.feature_level = max(self.feature_level, level)

    def _register(
        self, entry: Entry, event: brokerevents.BrokerRegistered, done: EntryOutcome
    ) -> Outcome:
        if self._has_registered(done):
            return Outcome(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        broker = self.brokers.register(done.number, event, entry.stamp_ms)
        self.topics.lead(self.brokers.nodes)
        return Outcome(ErrorCode.NONE, broker.node_id)

    def _process_registered(
        self, entry: Entry, event: brokerevents.ProcessRegistered, done: EntryOutcome
    ) -> Outcome:
        if self._has_registered(done):
            return Outcome(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        self.brokers.admit(done.number, event, entry.stamp_ms)
        return OK

    def _has_registered(self, done: EntryOutcome) -> bool:
        """Whether an earlier event of the entry registered a process under its number."""
        return self.feature_level >= ONE_REGISTRATION and done.number in self.brokers.sequences

    def _beat(self, _entry: Entry, _event: Message, _done: EntryOutcome) -> Outcome:
        return OK

    def _leave(self, entry: Entry, _event: Message, _done: EntryOutcome) -> Outcome:
        self.brokers.remove(entry.incarnation)
        self.topics.lead(self.brokers.nodes)
        return OK

    def _expire(
        self, _entry: Entry, event: brokerevents.BrokerExpired, _done: EntryOutcome
    ) -> Outcome:
        if self.brokers.sequences.get(event.incarnation) != event.last_sequence:
            return Outcome(ErrorCode.BROKER_ID_NOT_REGISTERED)
        self.brokers.remove(event.incarnation)
        self.topics.lead(self.brokers.nodes)
        return OK

    _handlers: Final[dict[type[Message], Callable[..., Outcome]]] = {
        brokerevents.ClusterCreated: _cluster_created,
        brokerevents.FeatureLevelRaised: _level_raised,
        brokerevents.BrokerRegistered: _register,
        brokerevents.ProcessRegistered: _process_registered,
        brokerevents.BrokerBeat: _beat,
        brokerevents.BrokerLeft: _leave,
        brokerevents.BrokerExpired: _expire,
        **grouprules.HANDLERS,
        **importrules.HANDLERS,
        **logrules.HANDLERS,
        **pinrules.HANDLERS,
        **securityrules.HANDLERS,
        **sinkrules.HANDLERS,
        **tokenrules.HANDLERS,
        **topicrules.HANDLERS,
        **txnrules.HANDLERS,
    }


_WITHOUT_WRITER: Final = (
    brokerevents.ClusterCreated,
    brokerevents.BrokerRegistered,
    brokerevents.ProcessRegistered,
)
