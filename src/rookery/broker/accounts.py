"""The users of a cluster: SCRAM credentials and delegation tokens from the cluster's state.

Passwords are accepted by PLAIN, too; delegation tokens only by SCRAM.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.tokens.delegationtokens import DelegationTokens
from rookery.clock import Random
from rookery.cluster.events.securityevents import ClusterSecretCreated
from rookery.cluster.replica import Replica
from rookery.cluster.state.rules.securityrules import SECURITY
from rookery.security.bearer import TokenVerifier
from rookery.security.credential import MIN_ITERATIONS, SCRAM_MECHANISMS, ScramCredential
from rookery.security.sasl import AcceptedToken, TokenCredential, refusal

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

    def __init__(
        self,
        replica: Replica,
        delegation_tokens: DelegationTokens,
        tokens: TokenVerifier | None = None,
    ) -> None:
        """Answer for one listener.

        Args:
            replica: has the users.
            delegation_tokens: has the cluster's delegation tokens.
            tokens: checks bearer tokens; None if the listener accepts none.
        """
        self._replica = replica
        self._delegation_tokens = delegation_tokens
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

    def delegation_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return what a login with a delegation token needs."""
        return self._delegation_tokens.credential(mechanism, token_id)

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
