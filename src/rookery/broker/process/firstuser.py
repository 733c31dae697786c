"""The first user of a cluster: without one, no client could log in to add others."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from rookery.clock import Random
from rookery.cluster.events.securityevents import ScramChange, ScramCredentialsChanged
from rookery.cluster.replica import Replica
from rookery.cluster.state.rules.securityrules import SECURITY
from rookery.errors import ConfigError
from rookery.security.credential import SALT_BYTES, SCRAM_MECHANISMS, ScramCredential

log = logging.getLogger(__name__)

ADMIN: Final = "admin"
"""The name of the first user."""


def security_folder(data: str) -> Path:
    """Return the folder with the keys and passwords of a broker with the setting `secure`."""
    return Path(data).absolute() / "security"


def password_file(data: str) -> Path:
    """Return the file with the first user's password."""
    return security_folder(data) / "admin-password"


def read_password(data: str) -> str:
    """Return the first user's password.

    Raises:
        ConfigError: the file cannot be read.
    """
    path = password_file(data)
    try:
        return path.read_text("ascii").strip()
    except OSError as error:
        raise ConfigError(error.strerror or str(error), name=str(path)) from error


async def create_first_user(replica: Replica, data: str, random: Random) -> None:
    """Create the user `admin` with the password in the data folder, if the cluster has no users.

    Workers that start together can all propose it. Their credentials have the same password.

    Raises:
        ConfigError: the password cannot be read.
    """
    state, name = replica.state, ADMIN
    if state.feature_level < SECURITY:
        log.warning(
            "the user %r was not created: the cluster has feature level %d; raise "
            "rookery.version to %d and start again",
            name,
            state.feature_level,
            SECURITY,
        )
        return
    if state.security.scram:
        if name not in state.security.scram:
            log.warning("the user %r was not created: the cluster has other users", name)
        return
    changes = await asyncio.to_thread(_changes, read_password(data), random)
    await replica.propose([ScramCredentialsChanged(user=name, changes=changes)])
    log.info("the first user of the cluster is %r", name)


def _changes(password: str, random: Random) -> list[ScramChange]:
    credentials = [
        ScramCredential.from_password(mechanism, password, random.token(SALT_BYTES))
        for mechanism in SCRAM_MECHANISMS
    ]
    return [
        ScramChange(
            mechanism=SCRAM_MECHANISMS[one.mechanism],
            iterations=one.iterations,
            salt=one.salt,
            stored_key=one.stored_key,
            server_key=one.server_key,
        )
        for one in credentials
    ]
