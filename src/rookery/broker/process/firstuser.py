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
from rookery.security.privatefile import replace_private

log = logging.getLogger(__name__)

ADMIN: Final = "admin"
"""The name of the first user."""
_MARK: Final = (
    b"The cluster has had users, so no start creates 'admin' again. To get back in after all users "
    b"were removed, stop the broker, delete this file and start the broker.\n"
)


def security_folder(data: str) -> Path:
    """Return the folder with the keys and passwords of a broker with the setting `secure`."""
    return Path(data).absolute() / "security"


def password_file(data: str) -> Path:
    """Return the file with the first user's password."""
    return security_folder(data) / "admin-password"


def created_file(data: str) -> Path:
    """Return the file that marks that the cluster has had users."""
    return security_folder(data) / "admin-created"


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
    """Create the user `admin` with the password in the data folder, if there were no users yet.

    It happens once: otherwise, an `admin` that was removed would come back with its first
    password. A file in the data folder marks that the cluster has had users.

    Workers that start together can all propose it. Their credentials have the same password.

    Raises:
        ConfigError: the password cannot be read, or the mark cannot be written.
    """
    state, mark = replica.state, created_file(data)
    if state.feature_level < SECURITY:
        log.warning(
            "the user %r was not created: the cluster has feature level %d; raise "
            "rookery.version to %d and start again",
            ADMIN,
            state.feature_level,
            SECURITY,
        )
        return
    if mark.exists():
        await _check_users(replica, data)
        return
    if not state.security.scram:
        changes = await asyncio.to_thread(_changes, read_password(data), random)
        await replica.propose([ScramCredentialsChanged(user=ADMIN, changes=changes)])
        log.info("the first user of the cluster is %r", ADMIN)
    elif ADMIN not in state.security.scram:
        log.warning("the user %r was not created: the cluster has other users", ADMIN)
    # After the proposal: a start that is killed before it creates the user must not mark it.
    replace_private(mark, _MARK)


async def _check_users(replica: Replica, data: str) -> None:
    """Report a cluster that no client can log in to with a password."""
    if not replica.state.security.scram:
        # Another worker may have created the first user a moment ago.
        await replica.barrier()
    if not replica.state.security.scram:
        log.warning(
            "the cluster has no users: they were removed, so no client can log in with a password. "
            "To create %r again with the password in %s, stop the broker, delete %s and start it",
            ADMIN,
            password_file(data),
            created_file(data),
        )


def _changes(password: str, random: Random) -> list[ScramChange]:
    credentials = [
        ScramCredential.from_password(mechanism, password, random.token(SALT_BYTES))
        for mechanism in SCRAM_MECHANISMS
    ]
    return [
        ScramChange(
            mechanism=SCRAM_MECHANISMS[credential.mechanism],
            iterations=credential.iterations,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
        )
        for credential in credentials
    ]
