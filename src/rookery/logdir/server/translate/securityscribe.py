"""Writes changes of access rules, users, quotas and tokens into `__cluster_metadata`.

The cluster's secret has no record in Kafka: a broker over a directory creates a new one at each
start, which changes only the salts that unknown users appear to have.
"""

from __future__ import annotations

from rookery.cluster.events import securityevents, tokenevents
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.rules.securityrules import binding_of
from rookery.cluster.state.tokens import StoredToken
from rookery.logdir.accesscontrol import acl_id, acl_of, acl_record, token_of, token_record
from rookery.logdir.server.loadeddirectory import LoadedDirectory
from rookery.logdir.server.translate.work import EventWriters, Work
from rookery.wire.kraft.cluster import ClientQuotaRecord, EntityData
from rookery.wire.kraft.security import (
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)


class SecurityScribe:
    """Translates events of access control."""

    def __init__(self, loaded: LoadedDirectory) -> None:
        """Start with the rules of the loaded directory, whose records have ids, and its tokens."""
        records = loaded.directory.image.acls.items()
        self._ids = {acl_of(record): record_id for record_id, record in records}
        tokens = loaded.directory.image.tokens.items()
        self._tokens = {token_id: token_of(record) for token_id, record in tokens}
        self.writers: EventWriters = {
            securityevents.AclsCreated: self._rules_created,
            securityevents.AclsDeleted: self._rules_deleted,
            securityevents.ScramCredentialsChanged: self._credentials_changed,
            securityevents.QuotasChanged: self._quotas_changed,
            tokenevents.DelegationTokenCreated: self._token_created,
            tokenevents.DelegationTokenRenewed: self._token_renewed,
            tokenevents.DelegationTokenRevoked: self._token_revoked,
            tokenevents.DelegationTokenExpired: self._token_expired,
        }

    def _rules_created(self, work: Work, event: securityevents.AclsCreated, _: Outcome) -> None:
        for row in event.rules:
            rule = binding_of(row)
            if rule in self._ids:
                continue
            self._ids[rule] = acl_id(rule)
            work.records.append(acl_record(rule, self._ids[rule]))

    def _rules_deleted(self, work: Work, _: securityevents.AclsDeleted, outcome: Outcome) -> None:
        # Several filters can find the same rule.
        for rule in dict.fromkeys(rule for rules in outcome.value for rule in rules):
            work.records.append(RemoveAccessControlEntryRecord(id_=self._ids.pop(rule)))

    def _credentials_changed(
        self, work: Work, event: securityevents.ScramCredentialsChanged, _: Outcome
    ) -> None:
        for change in event.changes:
            if not change.salt:
                work.records.append(
                    RemoveUserScramCredentialRecord(name=event.user, mechanism=change.mechanism)
                )
                continue
            work.records.append(
                UserScramCredentialRecord(
                    name=event.user,
                    mechanism=change.mechanism,
                    salt=bytes(change.salt),
                    stored_key=bytes(change.stored_key),
                    server_key=bytes(change.server_key),
                    iterations=change.iterations,
                )
            )

    def _quotas_changed(self, work: Work, event: securityevents.QuotasChanged, _: Outcome) -> None:
        entity = [
            EntityData(entity_type=part.entity_type, entity_name=part.name) for part in event.entity
        ]
        for change in event.changes:
            work.records.append(
                ClientQuotaRecord(
                    entity=entity, key=change.key, value=change.value, remove=change.is_removed
                )
            )

    def _token_created(
        self, work: Work, event: tokenevents.DelegationTokenCreated, _: Outcome
    ) -> None:
        token = StoredToken(
            event.owner,
            event.requester,
            tuple(event.renewers),
            event.issued_ms,
            event.expires_ms,
            event.max_ms,
        )
        self._write_token(work, event.token_id, token)

    def _token_renewed(
        self, work: Work, event: tokenevents.DelegationTokenRenewed, outcome: Outcome
    ) -> None:
        token = self._tokens[event.token_id]._replace(expires_ms=outcome.value)
        self._write_token(work, event.token_id, token)

    def _token_revoked(
        self, work: Work, event: tokenevents.DelegationTokenRevoked, outcome: Outcome
    ) -> None:
        if event.expires_ms < 0:
            self._remove_token(work, event.token_id)
            return
        token = self._tokens[event.token_id]._replace(expires_ms=outcome.value)
        self._write_token(work, event.token_id, token)

    def _token_expired(
        self, work: Work, event: tokenevents.DelegationTokenExpired, _: Outcome
    ) -> None:
        self._remove_token(work, event.token_id)

    def _write_token(self, work: Work, token_id: str, token: StoredToken) -> None:
        self._tokens[token_id] = token
        work.records.append(token_record(token_id, token))

    def _remove_token(self, work: Work, token_id: str) -> None:
        del self._tokens[token_id]
        work.records.append(RemoveDelegationTokenRecord(token_id=token_id))
