"""The ports on which a broker serves clients: its own, and the bootstrap port of all workers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from rookery.broker.accounts import ClusterAccounts, create_secret
from rookery.broker.call import Services
from rookery.broker.dispatch import Dispatcher
from rookery.broker.process.firstuser import create_first_user
from rookery.broker.settings import BrokerSettings
from rookery.clock import loop_seconds
from rookery.cluster.events.brokerevents import EndpointRow
from rookery.errors import ConfigError, Unavailable
from rookery.model.address import parse_address
from rookery.net.answers import AnswerBudget
from rookery.net.listener import HostLimit, Listener, ListenerSettings
from rookery.net.outbox import Budget
from rookery.net.settings import ConnectionSettings
from rookery.security.bearer import TokenVerifier
from rookery.security.certificatewatch import CertificateWatch
from rookery.service.audit.auditlog import AuditLog
from rookery.service.listen.listeners import (
    ListenerIdentity,
    bearer_settings,
    login_settings,
    tls_settings,
)
from rookery.service.listen.listenersettings import ListenerConfig
from rookery.service.listen.login import LoginService
from rookery.service.periodic import PeriodicTasks

log = logging.getLogger(__name__)

_CERTIFICATES_INTERVAL_MS: Final = 1_000
_SECRET_INTERVAL_MS: Final = 1_000
_KEYS_INTERVAL_MS: Final = 1_000
# A broker that has left the cluster answers until no request has arrived for _QUIET_SECONDS, but no
# longer than _REDIRECT_SECONDS.
_REDIRECT_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 0.15


class ClientPorts:
    """The listeners of a broker, which share one limit for requests and one for responses."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.listeners: list[Listener] = []
        """The started listeners; the broker's own port is the first."""
        self.endpoints: list[EndpointRow] = []
        """The advertised address of each listener, for the registration."""
        self.certificate_trouble = ""
        """Why changed certificates are not in use; empty if they are."""
        self._settings = settings
        self._logins: list[LoginService] = []
        self._verifiers: list[TokenVerifier] = []
        self._certificates: list[tuple[Listener, CertificateWatch]] = []
        self._audit: AuditLog | None = None

    @property
    def own(self) -> Listener:
        """The listener on the broker's own port, which is advertised to clients."""
        return self.listeners[0]

    @property
    def key_trouble(self) -> str:
        """Why keys of tokens could not be read; empty if they could. Old ones stay in use."""
        problems = dict.fromkeys(verifier.trouble for verifier in self._verifiers)
        return "; ".join(problem for problem in problems if problem)

    async def start(self, services: Services) -> None:
        """Listen on all ports.

        Raises:
            ConfigError: an address cannot be listened on, or the audit file cannot be opened.
        """
        settings = self._settings
        if settings.audit_file:
            self._audit = services.audit = AuditLog(settings.audit_file, services.clock)
            if services.guard is not None:
                services.guard.policy.audit = services.audit
        self._services = services
        self._dispatcher, self._budget = Dispatcher(services), Budget(settings.request_bytes)
        self._answers = AnswerBudget(settings.answer_bytes, settings.unread_timeout_ms)
        self._hosts = HostLimit(settings.max_connections_per_ip)
        for name, config in settings.client_listeners().items():
            verifier = await self._open_tokens(config)
            accounts = ClusterAccounts(
                services.replica, services.delegation_tokens, verifier, services.lease
            )
            login = LoginService(login_settings(config), accounts, services.clock, services.random)
            login.audit = services.audit
            services.logins[name] = login
            self._logins.append(login)
            listener = await self._listen(name, config)
            self.endpoints.append(_endpoint(name, config, listener.port))
            if config.shared:
                address = parse_address(config.shared, "shared")
                await self._listen(name, config.at(address), is_shared=True)
        if settings.bootstrap:
            name, config = next(iter(settings.client_listeners().items()))
            address = parse_address(settings.bootstrap, "bootstrap", lowest_port=0)
            await self._listen(name, config.at(address), is_shared=True)

    async def _open_tokens(self, config: ListenerConfig) -> TokenVerifier | None:
        """Open the check of tokens; keys that a server does not give now are read later."""
        bearer = bearer_settings(config)
        if bearer is None:
            return None
        verifier = TokenVerifier(bearer, self._services.clock)
        try:
            await asyncio.to_thread(verifier.refresh)
        except (ConfigError, Unavailable) as error:
            if not bearer.is_remote:
                raise ConfigError(str(error)) from error
            log.warning("tokens are refused until their keys can be read: %s", error)
        self._verifiers.append(verifier)
        return verifier

    async def refresh_keys(self) -> None:
        """Read the keys of tokens again, if they are old or a new one is needed.

        Raises:
            Unavailable: some could not be read the last time; the previous ones stay in use.
        """
        due = [verifier for verifier in self._verifiers if verifier.is_due]
        await asyncio.gather(*(_refresh(verifier) for verifier in due))
        # Most calls read nothing. They must not end an outage, so they report it, too.
        if self.key_trouble:
            raise Unavailable(self.key_trouble)

    def start_tasks(self, tasks: PeriodicTasks) -> None:
        """Begin the periodic work of the listeners."""
        if self._certificates:
            interval_ms = _CERTIFICATES_INTERVAL_MS
            tasks.every(interval_ms, "reload of certificates", self.reload_certificates)
        if self._verifiers:
            tasks.every(_KEYS_INTERVAL_MS, "refresh of the keys of tokens", self.refresh_keys)
        tasks.every(_SECRET_INTERVAL_MS, "creation of the secret for logins", self.create_secret)

    async def prepare_logins(self) -> None:
        """Create what the first login needs: the cluster's secret, and a first user if set so.

        Raises:
            ConfigError: the password of the first user cannot be read.
        """
        await self.create_secret()
        if self._settings.secure:
            services = self._services
            await create_first_user(services.replica, self._settings.data, services.random)

    async def create_secret(self) -> None:
        """Create the cluster's secret, if clients log in here and there is none.

        The feature level may allow it only some time after the start.
        """
        has_logins = any(login.settings.mechanisms for login in self._logins)
        if has_logins and not self._settings.read_only:
            await create_secret(self._services.replica, self._services.random)

    async def _listen(
        self, name: str, config: ListenerConfig, *, is_shared: bool = False
    ) -> Listener:
        options = ListenerSettings(
            host=config.address.host,
            port=config.address.port,
            reuse_port=is_shared,
            max_connections=self._settings.max_connections,
            connection=ConnectionSettings(requires_authentication=config.protocol.has_sasl),
        )
        tls = tls_settings(config)
        watch = CertificateWatch(tls) if tls is not None else None
        listener = Listener(
            self._dispatcher,
            options,
            budget=self._budget,
            answers=self._answers,
            tls=watch.context if watch is not None else None,
            admit=ListenerIdentity(name, config, self._services.quotas.record_connection).admit,
        )
        listener.hosts = self._hosts
        await listener.start()
        self.listeners.append(listener)
        if watch is not None:
            self._certificates.append((listener, watch))
        return listener

    async def reload_certificates(self) -> None:
        """Use the certificates whose files have changed, for the next connections.

        Raises:
            ConfigError: some of them cannot be used; their listeners keep the previous ones.
        """
        problems: dict[str, None] = {}
        for listener, watch in self._certificates:
            try:
                is_new = watch.look()
            except ConfigError as error:
                problems[str(error)] = None
                continue
            if is_new:
                listener.tls = watch.context
                log.info("the listener on port %d uses a new certificate", listener.port)
        self.certificate_trouble = "; ".join(problems)
        if problems:
            raise ConfigError(self.certificate_trouble)

    async def redirect_clients(self, services: Services) -> None:
        """Continue for a moment to report the new leaders of partitions to clients.

        A client that finds the port closed instead waits up to ten seconds before it retries.
        """
        end = loop_seconds() + _REDIRECT_SECONDS
        seen = -1
        while loop_seconds() < end and seen != services.requests:
            has_clients = any(listener.connections for listener in self.listeners)
            if not has_clients or not services.replica.state.brokers.by_node:
                return
            seen = services.requests
            await asyncio.sleep(_QUIET_SECONDS)

    async def stop(self, grace_ms: int) -> None:
        """Stop listening, and close all connections when their requests are answered."""
        await asyncio.gather(*(listener.stop(grace_ms) for listener in self.listeners))
        for login in self._logins:
            login.close()
        if self._audit is not None:
            await asyncio.to_thread(self._audit.close)

    def abort_connections(self) -> None:
        """Close all connections immediately; clients connect again."""
        for listener in self.listeners:
            for connection in list(listener.connections):
                connection.abort()


async def _refresh(verifier: TokenVerifier) -> None:
    # The verifier keeps the error for `key_trouble`.
    with suppress(ConfigError, Unavailable):
        await asyncio.to_thread(verifier.refresh)


def _endpoint(name: str, config: ListenerConfig, port: int) -> EndpointRow:
    address = config.choose_address(port)
    return EndpointRow(
        listener=name, protocol=config.protocol.value, host=address.host, port=address.port
    )
