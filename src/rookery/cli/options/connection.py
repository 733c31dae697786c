"""Options for the connection of a command to a cluster, and for its login."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rookery.cli.options.fields import option, part, switch
from rookery.cli.options.values import seconds

if TYPE_CHECKING:
    from rookery.client.properties import ClientProperties
    from rookery.client.settings import ClientSettings, Sasl
    from rookery.security.tls import ClientTls

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """TLS and SASL; no flag has a secret."""

    client_config: str | None = option(
        "--client-config",
        metavar="FILE",
        help="a client.properties file of the Java client with brokers, TLS and login; other "
        "options override it",
    )
    tls: bool = switch("--tls", help="use TLS; implied by the other TLS options")
    ca_file: str | None = option(
        "--ca-file",
        metavar="PEM",
        help="the certificate authorities to trust (default: the system's)",
    )
    cert_file: str | None = option(
        "--cert-file", metavar="PEM", help="the client certificate, if brokers request one"
    )
    key_file: str | None = option(
        "--key-file",
        metavar="PEM",
        help="the private key of the certificate, if it is in a separate file",
    )
    no_verify: bool = switch(
        "--no-verify", help="accept any server certificate; insecure, for tests only"
    )
    user: str | None = option("--user", metavar="NAME", help="the user name for SASL")
    password_file: str | None = option(
        "--password-file",
        metavar="FILE",
        help="a file with the password in its first line (default: prompt)",
    )
    mechanism: str = option(
        "--mechanism",
        default="SCRAM-SHA-512",
        help="the SASL mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (default: %(default)s)",
    )
    token_file: str | None = option(
        "--token-file",
        metavar="FILE",
        help="a file with the token for SASL/OAUTHBEARER",
    )
    delegation_token: bool = switch(
        "--delegation-token",
        help="log in with a delegation token: --user is its id, the password is its HMAC",
    )

    def properties(self) -> ClientProperties:
        """Read the file of `--client-config`.

        Raises:
            ConfigError: it cannot be read or used.
        """
        from rookery.client.properties import ClientProperties, read_client_properties

        return (
            read_client_properties(self.client_config) if self.client_config else ClientProperties()
        )

    def client_tls(self) -> ClientTls | None:
        """Return the settings of TLS; None for a connection without TLS.

        Raises:
            ConfigError: a file is named that makes no sense without another.
        """
        from rookery.errors import ConfigError
        from rookery.security.tls import ClientTls, KeyPair

        if not (self.tls or self.ca_file or self.cert_file or self.no_verify):
            return self.properties().tls
        if self.key_file and not self.cert_file:
            raise ConfigError("--key-file: needs --cert-file, the certificate that it belongs to")
        own = KeyPair(self.cert_file, self.key_file) if self.cert_file else None
        verify = not self.no_verify
        return ClientTls(ca_file=self.ca_file, own=own, verify=verify, check_hostname=verify)

    def sasl(self) -> Sasl | None:
        """Return the login, and prompt for the password if no file is named; None for no login.

        Raises:
            ConfigError: there is no such file, or no user whose password it is.
        """
        from rookery.client.settings import Sasl
        from rookery.errors import ConfigError

        if self.token_file:
            return Sasl("OAUTHBEARER", token_file=self.token_file)
        if self.user is None:
            if self.password_file:
                raise ConfigError("--password-file: needs --user, whose password it is")
            return self.properties().sasl
        return Sasl(
            self.mechanism,
            self.user,
            self._password(),
            is_delegation_token=self.delegation_token,
        )

    def _password(self) -> str:
        import getpass
        from pathlib import Path

        from rookery.errors import ConfigError

        # Never an argument: all users of the host can see arguments, and shells store them.
        if self.password_file is None:
            return getpass.getpass(f"Password of {self.user}: ")
        try:
            lines = Path(self.password_file).read_text("utf-8").splitlines()
        except OSError as error:
            raise ConfigError(f"--password-file: {error}") from error
        return lines[0] if lines else ""


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The address of the cluster, and the time limit for requests."""

    bootstrap: str = option(
        "-b",
        "--bootstrap",
        default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT,…",
        help="one or more brokers, from which the client learns all others (default: %(default)s)",
    )
    timeout: float = option(
        "--timeout",
        type=seconds,
        default=15.0,
        metavar="SECONDS",
        help="the time after which retries stop (default: %(default)g)",
    )
    credentials: Credentials = part(Credentials)

    @property
    def timeout_ms(self) -> int:
        """The same in milliseconds, at least one."""
        return max(1, int(self.timeout * 1000))

    def client_settings(self, command: str) -> ClientSettings:
        """Return the settings of a command's client.

        Raises:
            ConfigError: an argument cannot be used; the text names it.
        """
        from rookery.client.settings import ClientSettings

        bootstrap = self.bootstrap
        if bootstrap == DEFAULT_BOOTSTRAP:
            bootstrap = self.credentials.properties().bootstrap or bootstrap
        return ClientSettings(
            bootstrap=bootstrap,
            client_id=f"rookery-{command}",
            tls=self.credentials.client_tls(),
            sasl=self.credentials.sasl(),
            call_timeout_ms=self.timeout_ms,
            request_timeout_ms=min(self.timeout_ms, 30_000),
            connect_timeout_ms=min(self.timeout_ms, 10_000),
        )
