"""Marks for `wire.walk`, for names whose meaning depends on a neighbouring field.

The numbers are Kafka's: types of resources that have settings, types of resources and patterns in
ACLs, types of keys that have a coordinator. A broker's settings name it in decimal; `wire.walk`
reads and writes that as a number, and an empty name, which means all brokers, is left alone.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from rookery.wire.message import (
    BrokerId,
    ClientHost,
    ClientId,
    FieldKind,
    GroupId,
    Principal,
    TokenId,
    TopicName,
    TransactionalId,
    Type,
    User,
)
from rookery.wire.neighbour import KindByNeighbour

# Names in ACLs that stand for more than one resource: prefixes, and the wildcard.
TopicPattern = Annotated[str, Type.STRING, FieldKind("topic pattern")]
GroupPattern = Annotated[str, Type.STRING, FieldKind("group pattern")]
TransactionalIdPattern = Annotated[str, Type.STRING, FieldKind("transactional id pattern")]
# The same for resources of other types, or of any type.
ResourcePattern = Annotated[str, Type.STRING, FieldKind("resource pattern")]
# A group id, a topic id and a partition, with colons between them.
ShareKey = Annotated[str, Type.STRING, FieldKind("share key")]

_CONFIG_TYPES: Final = {2: TopicName, 4: BrokerId, 8: BrokerId, 32: GroupId}
ConfigResourceName = Annotated[
    str, Type.STRING, KindByNeighbour("resource_type", kinds=_CONFIG_TYPES)
]

_KEY_TYPES: Final = {0: GroupId, 1: TransactionalId, 2: ShareKey}
AskedCoordinatorKey = Annotated[str, Type.STRING, KindByNeighbour("key_type", kinds=_KEY_TYPES)]

_ENTITY_TYPES: Final = {"user": User, "client-id": ClientId, "ip": ClientHost}
QuotaEntityName = Annotated[str, Type.STRING, KindByNeighbour("entity_type", kinds=_ENTITY_TYPES)]

_PRINCIPAL_TYPES: Final = {"User": User}
PrincipalName = Annotated[
    str, Type.STRING, KindByNeighbour("principal_type", kinds=_PRINCIPAL_TYPES)
]
OwnerName = Annotated[
    str, Type.STRING, KindByNeighbour("owner_principal_type", kinds=_PRINCIPAL_TYPES)
]
RequesterName = Annotated[
    str, Type.STRING, KindByNeighbour("token_requester_principal_type", kinds=_PRINCIPAL_TYPES)
]

# Types of resources in ACLs: 1 any (in filters only), 4 is the cluster, which has one fixed name.
_NAMES: Final = {2: TopicName, 3: GroupId, 5: TransactionalId, 6: TokenId, 7: Principal}
_PATTERNS: Final = {
    1: ResourcePattern,
    2: TopicPattern,
    3: GroupPattern,
    5: TransactionalIdPattern,
    6: ResourcePattern,
    7: ResourcePattern,
}
# Types of patterns: 1 any and 2 match (in filters only), 3 literal, 4 prefixed. "Match" takes a
# name and finds all patterns that cover it; "any" finds patterns of that text, whatever their type.
_ANY, _MATCH, _LITERAL, _PREFIXED = 1, 2, 3, 4
_ACL_KINDS: Final[dict[Any, object]] = {
    **{(kind, pattern): _PATTERNS[kind] for kind in _PATTERNS for pattern in (_ANY, _PREFIXED)},
    **{(1, pattern): ResourcePattern for pattern in (_MATCH, _LITERAL)},
    **{(kind, pattern): _NAMES[kind] for kind in _NAMES for pattern in (_MATCH, _LITERAL)},
}
_ACL_WILDCARDS: Final[dict[Any, object]] = {
    (kind, pattern): mark
    for kind, mark in _PATTERNS.items()
    for pattern in (_ANY, _MATCH, _LITERAL, _PREFIXED)
}
AclResourceName = Annotated[
    str,
    Type.STRING,
    KindByNeighbour("resource_type", "pattern_type", kinds=_ACL_KINDS, wildcards=_ACL_WILDCARDS),
]
CreatedAclResourceName = Annotated[
    str,
    Type.STRING,
    KindByNeighbour(
        "resource_type", "resource_pattern_type", kinds=_ACL_KINDS, wildcards=_ACL_WILDCARDS
    ),
]
AclResourceNameFilter = Annotated[
    str,
    Type.STRING,
    KindByNeighbour(
        "resource_type_filter", "pattern_type_filter", kinds=_ACL_KINDS, wildcards=_ACL_WILDCARDS
    ),
]
