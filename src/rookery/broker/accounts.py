"""The users of a cluster: SCRAM credentials from the cluster's state, also for PLAIN."""

from __future__ import annotations

from typing import Final

from rookery.clock import Random
from rookery.cluster.events.securityevents import ClusterSecretCreated
from rookery.cluster.replica import Replica
from rookery.cluster.state.rules.securityrules import SECURITY
from rookery.security.bearer import TokenVerifier
from rookery.security.credential import MIN_ITERATIONS, SCRAM_MECHANISMS, ScramCredential
from rookery.security.sasl import AcceptedToken, refusal

_NO_SALT: Final = b"rookery: no such user"
_SECRET_BYTES: Final = 32


async def create_secret(replica: Replica, random: Random) -> None:
    """Create the cluster's secret if there is none and the feature level allows it.

    Of brokers that do this at the same time, the first one's secret counts.
    """
    state = replica.state
    if state.feature_level >= SECURITY and not state.security.secret:
        await replica.propose([ClusterSecretCreated(secret=random.token(_SECRET_BYTES))])


class ClusterAccounts:
    """Answers from the state that the replica has applied."""

    def __init__(self, replica: Replica, tokens: TokenVerifier | None = None) -> None:
        self._replica = replica
        self._tokens = tokens

    @property
    def secret(self) -> bytes:
        """The cluster's secret, from which the salts of unknown users are derived."""
        return self._replica.state.security.secret

    @property
    def iterations(self) -> int:
        """The iteration count that unknown users appear to have."""
        return MIN_ITERATIONS

    def scram(self, mechanism: str, username: str) -> ScramCredential | None:
        """Return a user's credential."""
        credentials = self._replica.state.security.scram.get(username, {})
        stored = credentials.get(SCRAM_MECHANISMS[mechanism])
        if stored is None:
            return None
        return ScramCredential(
            mechanism, stored.salt, stored.iterations, stored.stored_key, stored.server_key
        )

    def has_password(self, username: str, password: str) -> bool:
        """Check a password against a user's credentials; takes as long for an unknown user."""
        for mechanism in SCRAM_MECHANISMS:
            known = self.scram(mechanism, username)
            if known is not None:
                return known.matches(password)
        ScramCredential.from_password("SCRAM-SHA-256", password, _NO_SALT, self.iterations)
        return False

    def check_token(self, token: str) -> AcceptedToken:
        """Return the user of a bearer token, if the listener accepts tokens."""
        if self._tokens is None:
            raise refusal("tokens are not accepted here")
        return self._tokens.check(token)
