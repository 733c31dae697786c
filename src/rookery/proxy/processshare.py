"""The resources that all virtual clusters of a process share: memory limits and listeners."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.net.answers import AnswerBudget
from rookery.net.listener import Listener
from rookery.net.outbox import Budget
from rookery.proxy.access.heldports import HeldPorts
from rookery.proxy.settings import ProxySettings
from rookery.service.listen.listenermetrics import PastListeners
from rookery.wire.frame import Chunks


@dataclass(frozen=True, slots=True)
class ProcessShare:
    """The limits of memory for all clients of a process, and its listeners."""

    requests: Budget
    answers: AnswerBudget
    chunks: Chunks
    listeners: list[Listener]
    """The started listeners of all clusters."""
    held: HeldPorts
    """Ports that a reload hands from one cluster to another."""
    past: PastListeners
    """The counts of listeners that a reload has closed."""

    @classmethod
    def of(cls, settings: ProxySettings) -> ProcessShare:
        """Create the limits that the settings give."""
        answers = AnswerBudget(settings.answer_bytes, settings.unread_timeout_ms)
        return cls(
            Budget(settings.request_bytes), answers, Chunks(), [], HeldPorts(), PastListeners()
        )
