"""The users of a cluster: SCRAM credentials and delegation tokens from the cluster's state.

Passwords are accepted by PLAIN, too; delegation tokens only by SCRAM.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.rulelease import RuleLease
from rookery.broker.tokens.delegationtokens import DelegationTokens
from rookery.clock import Random
from rookery.cluster.events.securityevents import ClusterSecretCreated
from rookery.cluster.replica import Replica
from rookery.cluster.state.rules.securityrules import SECURITY
from rookery.cluster.state.security import Security
from rookery.security.bearer import TokenVerifier
from rookery.security.credential import SCRAM_MECHANISMS, ScramCredential, ScramMechanism
from rookery.security.sasl import AcceptedToken, TokenCredential
from rookery.service.listen.decoys import CredentialForm, Decoys
from rookery.service.listen.passwordmatch import match_password, match_token

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
        lease: RuleLease | None = None,
    ) -> None:
        """Answer for one listener.

        Args:
            replica: has the users.
            delegation_tokens: has the cluster's delegation tokens.
            tokens: checks bearer tokens; None if the listener accepts none.
            lease: whether the users are up to date; None if they always are.
        """
        self._lease = lease
        self._replica = replica
        self._delegation_tokens = delegation_tokens
        self._tokens = tokens
        self._decoys = Decoys(b"", ())
        self._decoys_source: tuple[Security | None, int] = None, 0

    def scram(self, mechanism: str, username: str) -> ScramCredential | None:
        """Return a user's credential.

        Raises:
            Unavailable: the user may have been removed since.
        """
        self._require_lease()
        credentials = self._replica.state.security.scram.get(username, {})
        stored = credentials.get(SCRAM_MECHANISMS[mechanism])
        if stored is None:
            return None
        return ScramCredential(
            mechanism, stored.salt, stored.iterations, stored.stored_key, stored.server_key
        )

    def delegation_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return what a login with a delegation token needs.

        Raises:
            Unavailable: the token may have been removed since.
        """
        self._require_lease()
        return self._delegation_tokens.credential(mechanism, token_id)

    def decoy(self, mechanism: str, username: str, *, is_token: bool) -> ScramCredential:
        """Return the credential that an unknown user, or token, appears to have."""
        decoys = self._current_decoys()
        return (decoys.of_token if is_token else decoys.of_mechanism)(mechanism, username)

    def has_password(self, username: str, password: str) -> bool:
        """Check a password against a user's credentials; hashes as much for an unknown user."""
        known = [self.scram(mechanism, username) for mechanism in SCRAM_MECHANISMS]
        credentials = [each for each in known if each is not None]
        return match_password(username, password, credentials, self._current_decoys())

    def _current_decoys(self) -> Decoys:
        """Return the decoys for the users of now; any thread may ask."""
        security = self._replica.state.security
        source = security, security.accounts_version
        if source != self._decoys_source:
            forms = (
                [
                    CredentialForm.of(ScramMechanism(number).text, stored.iterations, stored.salt)
                    for number, stored in credentials.items()
                ]
                for credentials in list(security.scram.values())
            )
            self._decoys, self._decoys_source = Decoys(security.secret, forms), source
        return self._decoys

    def _require_lease(self) -> None:
        if self._lease is not None:
            self._lease.require()

    def check_token(self, token: str) -> AcceptedToken:
        """Return the user of a bearer token, if the listener accepts tokens."""
        return match_token(self._tokens, token)
