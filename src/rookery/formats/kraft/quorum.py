"""`quorum-state`: the leader that a controller knows or has voted for, and the epoch."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from rookery.errors import Corrupt
from rookery.model.uuid import ZERO, uuid_text

QUORUM_STATE: Final = "quorum-state"


class QuorumState(NamedTuple):
    """The epoch that a controller knows; an id of -1 means no leader or no vote."""

    leader_epoch: int
    leader_id: int = -1
    voted_id: int = -1
    voted_directory_id: str = uuid_text(ZERO)


def parse_quorum_state(text: str, name: str = QUORUM_STATE) -> QuorumState:
    """Read a `quorum-state`.

    Raises:
        Corrupt: it is damaged; the text begins with the name.
    """
    try:
        values = json.loads(text)
        return QuorumState(
            leader_epoch=int(values["leaderEpoch"]),
            leader_id=int(values["leaderId"]),
            voted_id=int(values["votedId"]),
            voted_directory_id=str(values.get("votedDirectoryId") or uuid_text(ZERO)),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Corrupt(f"is not a quorum's state: {error!r}", name=name) from error


def format_quorum_state(state: QuorumState) -> str:
    """Write a `quorum-state`, in the version with directory ids (KIP-853)."""
    values = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": state.voted_directory_id,
        "data_version": 1,
    }
    return json.dumps(values, separators=(",", ":"))
