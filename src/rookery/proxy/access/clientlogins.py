"""Logins that end at the proxy: nothing but ApiVersions and SASL passes before the login.

A listener without SASL is served, too, if the proxy logs in at the upstream itself: the login of a
client must not reach a connection that belongs to another user, so it is refused here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from rookery.clock import Clock, Random
from rookery.errors import ApiError, ConfigError, ProtocolError, Unavailable
from rookery.net.connection import Connection
from rookery.proxy.access.upstreamversions import UpstreamVersions
from rookery.proxy.access.userfile import UserFile
from rookery.proxy.apiversions import refuse_versions
from rookery.proxy.passage import Passage, PassageTable
from rookery.security.bearer import TokenVerifier
from rookery.service.listen.listeners import bearer_settings, login_settings
from rookery.service.listen.listenersettings import ListenerConfig
from rookery.service.listen.login import LoginService
from rookery.wire.buffer import Buffer
from rookery.wire.codec import API_VERSIONS_KEY, peek, read_request, response_frame
from rookery.wire.frame import Frame
from rookery.wire.message import Message
from rookery.wire.messages.api_versions import API_VERSIONS
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE

log = logging.getLogger(__name__)

_LOGIN_KEYS: Final = frozenset({SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key})


class ClientLogins:
    """Logs in the clients of one listener of a virtual cluster."""

    def __init__(
        self,
        config: ListenerConfig,
        users_file: str,
        passages: PassageTable,
        versions: UpstreamVersions,
        clock: Clock,
        random: Random,
    ) -> None:
        """Read the users.

        Args:
            config: the settings of the listener.
            users_file: the path of the users; empty for none.
            passages: what passes through the proxy.
            versions: the versions of the upstream, for clients that have not logged in.
            clock: times the sessions.
            random: creates nonces and salts.

        Raises:
            ConfigError: a setting cannot be used, or there are no users.
        """
        logins, bearer = login_settings(config), bearer_settings(config)
        if any(each != "OAUTHBEARER" for each in logins.mechanisms) and not users_file:
            raise ConfigError(
                f"must be set, because clients log in at {config.listen}", name="users_file"
            )
        self._bearer = bearer
        self._tokens = TokenVerifier(bearer, clock) if bearer is not None else None
        self._users = UserFile(users_file, logins.mechanisms, random, self._tokens)
        self._service = LoginService(logins, self._users, clock, random)
        self._passages = passages
        self._versions = versions
        self._clock = clock
        self.trouble = ""
        """Why changed users are not in use; empty if they are."""

    async def start(self) -> None:
        """Read the keys of tokens; those that cannot be reached now are read later.

        Raises:
            ConfigError: the keys cannot be used.
        """
        if self._tokens is None or self._bearer is None:
            return
        try:
            await asyncio.to_thread(self._tokens.refresh)
        except Unavailable as error:
            if not self._bearer.is_remote:
                raise ConfigError(str(error)) from error
            log.warning("tokens are refused until their keys can be read: %s", error)

    async def refresh(self) -> None:
        """Read changed users, and the keys of tokens if they are due.

        Raises:
            ConfigError: they cannot be used; the previous ones stay.
            Unavailable: the keys cannot be read.
        """
        try:
            if await asyncio.to_thread(self._users.look):
                log.info("the users of a changed file are in use")
        except ConfigError as error:
            self.trouble = str(error)
            raise
        self.trouble = ""
        if self._tokens is not None and self._tokens.is_due:
            await asyncio.to_thread(self._tokens.refresh)

    def close(self) -> None:
        """Stop the threads; logins in progress fail."""
        self._service.close()

    def intercept(
        self, node_id: int | None, connection: Connection, frame: Frame
    ) -> list[Buffer] | Awaitable[list[Buffer]] | None:
        """Answer a request of a login, or before one; return None for a request that may pass.

        Raises:
            ProtocolError: the client has not logged in, or its login has expired.
        """
        session = connection.session
        key, version, correlation_id = peek(frame)
        if key in _LOGIN_KEYS:
            passage = self._passages.find((key, version))
            if passage is None:
                raise ProtocolError(f"SASL by API {key} in version {version} is not offered")
            return self._log_in(connection, passage, correlation_id, frame)
        if session.principal is None:
            if key != API_VERSIONS_KEY:
                raise ProtocolError(f"API {key} before the login; authenticate with SASL first")
            passage = self._passages.find((key, version))
            if passage is None:
                return refuse_versions(correlation_id)
            # No broker checks it, since none sees it.
            _, request = read_request(passage.api, frame)
            session.note_software(request.client_software_name, request.client_software_version)
            return self._list_versions(node_id, version, correlation_id)
        is_expired = session.expires_ms and self._clock.monotonic_ms() >= session.expires_ms
        if is_expired and key != API_VERSIONS_KEY:
            raise ProtocolError(f"the login of {session.principal} has expired; log in again")
        return None

    def _log_in(
        self, connection: Connection, passage: Passage, correlation_id: int, frame: Frame
    ) -> list[Buffer] | Awaitable[list[Buffer]]:
        _, request = read_request(passage.api, frame)

        def encode(response: Message) -> list[Buffer]:
            return response_frame(passage.api, passage.version, correlation_id, response)

        async def wait(response: Awaitable[Message]) -> list[Buffer]:
            return encode(await response)

        try:
            if passage.api.key == SASL_HANDSHAKE.key:
                return encode(self._service.handshake(connection, request.mechanism))
            return wait(self._service.authenticate(connection, request))
        except ApiError as error:
            return encode(passage.api.refuse(request, error.code))

    async def _list_versions(
        self, node_id: int | None, version: int, correlation_id: int
    ) -> list[Buffer]:
        answer = await self._versions.find(node_id)
        return response_frame(API_VERSIONS, version, correlation_id, answer)
