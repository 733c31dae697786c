"""Exceptions, grouped by how the caller should react, and Kafka's error codes."""

from __future__ import annotations

from enum import IntEnum


class Error(Exception):
    """The base class of every error that Rookery raises deliberately."""

    def __init__(self, reason: str = "", *, name: str = "") -> None:
        """Build the message from the reason and the name.

        Args:
            reason: what went wrong.
            name: the file, setting or other item that is affected; it becomes the message's prefix.
        """
        super().__init__(f"{name}: {reason}" if name else reason)
        self.reason = reason
        self.name = name


class ProtocolError(Error):
    """The peer violated the wire protocol: close the connection."""


class ApiError(Error):
    """The request cannot be granted: respond with this error code."""

    def __init__(self, code: ErrorCode, reason: str = "", *, name: str = "") -> None:
        self.text = f"{name}: {reason}" if name else reason
        super().__init__(f"{code.name}: {self.text or code.sentence}")
        self.code = code
        self.reason = reason or code.sentence
        self.name = name


class Conflict(Error):  # noqa: N818 (the name says what happened; the base says it is an error)
    """A concurrent change came first: read again, then retry."""


class Gone(Conflict):
    """The prepared item no longer exists and nothing was changed: prepare it again."""


class Unavailable(Error):  # noqa: N818
    """A broker, store or log is unreachable: retry later."""


class Corrupt(Error):  # noqa: N818
    """A checksum or a format is wrong: do not retry; the message names the item and the place."""

    def __init__(self, reason: str, *, name: str = "", object_id: int | None = None) -> None:
        """Build the message; `object_id` is the damaged object, if the text does not name it."""
        super().__init__(reason, name=name)
        self.object_id = object_id


class ConfigError(Error):
    """The user must change a setting; the message or `name` identifies it."""


class ErrorCode(IntEnum):
    """Kafka's error codes: the number, whether the error is retriable, and its meaning."""

    retriable: bool
    sentence: str

    # The defaults are for type checkers, which treat a look-up by number as a call of this method.
    def __new__(
        cls,
        value: int,
        retriable: bool = False,  # noqa: FBT001, FBT002 (a column of the table below)
        sentence: str = "",
    ) -> ErrorCode:
        """Create a member whose value is only the number."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.retriable = retriable
        member.sentence = sentence
        return member

    @property
    def stale_metadata(self) -> bool:
        """Return whether a client must refresh its metadata before it retries."""
        return self in _STALE_METADATA

    @classmethod
    def _missing_(cls, value: object) -> ErrorCode | None:
        # A newer peer may send unknown codes, and a proxy must forward them. The wire carries 16
        # bits, so at most 65 536 members can be created.
        if not isinstance(value, int) or not -32768 <= value <= 32767:
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value}"
        member._value_ = value
        member.retriable = False
        member.sentence = "A code that this version of Rookery has no name for."
        cls._value2member_map_[value] = member
        return member

    UNKNOWN_SERVER_ERROR = (
        -1,
        False,
        "The broker failed for a reason it has no code for; its log says more.",
    )
    NONE = 0, False, "All went well."
    OFFSET_OUT_OF_RANGE = (
        1,
        False,
        "The partition does not hold this offset; seek to its start or end.",
    )
    CORRUPT_MESSAGE = (
        2,
        True,
        "The records were damaged on the way or are malformed; send them again.",
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This broker does not know the topic or the partition."
    INVALID_FETCH_SIZE = 4, False, "The requested number of bytes is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader yet; an election may be under way."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker does not lead the partition; ask the new leader."
    REQUEST_TIMED_OUT = (
        7,
        True,
        "The broker could not finish within the time that the request allowed.",
    )
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not there."
    REPLICA_NOT_AVAILABLE = 9, True, "This broker holds no usable copy of the partition."
    MESSAGE_TOO_LARGE = (
        10,
        False,
        "A batch exceeds the topic's max.message.bytes; send less at once.",
    )
    STALE_CONTROLLER_EPOCH = (
        11,
        False,
        "A newer controller has taken over from the one that sent this.",
    )
    OFFSET_METADATA_TOO_LARGE = 12, False, "The note stored with a committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection broke before an answer came."
    COORDINATOR_LOAD_IN_PROGRESS = (
        14,
        True,
        "The coordinator is still loading its state; try again shortly.",
    )
    COORDINATOR_NOT_AVAILABLE = 15, True, "No coordinator can be named at the moment."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator; look the coordinator up again."
    INVALID_TOPIC_EXCEPTION = (
        17,
        False,
        "The topic's name is not allowed, or the topic may not be used this way.",
    )
    RECORD_LIST_TOO_LARGE = (
        18,
        False,
        "The batch would not fit into one log segment; send less at once.",
    )
    NOT_ENOUGH_REPLICAS = (
        19,
        True,
        "Fewer replicas are in sync than min.insync.replicas; nothing was written.",
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The records were written, but on fewer replicas than min.insync.replicas.",
    )
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1."
    ILLEGAL_GENERATION = 22, False, "The group has moved on to another generation; join it again."
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        False,
        "The member shares no assignor or protocol type with the group.",
    )
    INVALID_GROUP_ID = 24, False, "The group id is empty or otherwise not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The group has no such member; join it again."
    INVALID_SESSION_TIMEOUT = (
        26,
        False,
        "The session timeout is outside the range that the broker allows.",
    )
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; join it again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "The principal has no right to do this to the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "The principal has no right to do this to the group."
    CLUSTER_AUTHORIZATION_FAILED = (
        31,
        False,
        "The principal has no right to do this to the cluster.",
    )
    INVALID_TIMESTAMP = 32, False, "A record's timestamp is outside of what the topic accepts."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "The broker does not speak this version of the request."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not allowed."
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "The replication factor is below 1 or above the number of brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The assignment of replicas to brokers is not valid."
    INVALID_CONFIG = 40, False, "A configuration key is unknown or its value is not valid."
    NOT_CONTROLLER = 41, True, "This broker is not the controller; ask the one that is."
    INVALID_REQUEST = 42, False, "The request contradicts itself or lacks something."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43,
        False,
        "The records' format on the broker is too old for this request.",
    )
    POLICY_VIOLATION = 44, False, "A policy set by the cluster's operator forbids this."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "A batch of this producer is missing before this one."
    DUPLICATE_SEQUENCE_NUMBER = (
        46,
        False,
        "The broker has this batch already, or one that overlaps it.",
    )
    INVALID_PRODUCER_EPOCH = (
        47,
        False,
        "A newer producer with the same transactional id has taken over.",
    )
    INVALID_TXN_STATE = 48, False, "The transaction is in a state that does not allow this."
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        False,
        "The producer id does not belong to the transactional id.",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        False,
        "The transaction timeout exceeds the broker's transaction.max.timeout.ms.",
    )
    CONCURRENT_TRANSACTIONS = (
        51,
        True,
        "The previous transaction of this producer is still being finished.",
    )
    TRANSACTION_COORDINATOR_FENCED = 52, False, "A newer transaction coordinator has taken over."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (
        53,
        False,
        "The principal has no right to use the transactional id.",
    )
    SECURITY_DISABLED = 54, False, "The broker has no authorizer, so there are no ACLs to work on."
    OPERATION_NOT_ATTEMPTED = (
        55,
        False,
        "Another part of the same request failed first, so this was not tried.",
    )
    KAFKA_STORAGE_ERROR = 56, True, "The broker could not read or write its log."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "The credentials were refused."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker has forgotten this producer, or never knew it."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition's replicas are being moved."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "The broker does not offer delegation tokens."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The broker does not know the delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = (
        63,
        False,
        "The delegation token belongs to another principal.",
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Delegation tokens cannot be requested over this kind of connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (
        65,
        False,
        "The principal has no right to do this to the delegation token.",
    )
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has run out."
    INVALID_PRINCIPAL_TYPE = 67, False, "The kind of principal is not supported here."
    NON_EMPTY_GROUP = 68, False, "The group still has members; stop them first."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = (
        70,
        True,
        "The broker has dropped the fetch session; start a new one.",
    )
    INVALID_FETCH_SESSION_EPOCH = (
        71,
        True,
        "The fetch session's epoch is not the expected one; start a new session.",
    )
    LISTENER_NOT_FOUND = (
        72,
        True,
        "The leader has no listener of the kind that this request came in by.",
    )
    TOPIC_DELETION_DISABLED = 73, False, "The broker is set to refuse the deletion of topics."
    FENCED_LEADER_EPOCH = (
        74,
        True,
        "The leader epoch sent is older than the broker's; refresh metadata.",
    )
    UNKNOWN_LEADER_EPOCH = (
        75,
        True,
        "The leader epoch sent is newer than the broker's; let it catch up.",
    )
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The client's version cannot read this compression."
    STALE_BROKER_EPOCH = 77, False, "The broker has registered again since it sent this."
    OFFSET_NOT_AVAILABLE = (
        78,
        True,
        "The new leader's high watermark is not known yet; try again shortly.",
    )
    MEMBER_ID_REQUIRED = 79, False, "Join once more with the member id given in this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = (
        80,
        True,
        "The preferred leader is not in sync, so it cannot lead.",
    )
    GROUP_MAX_SIZE_REACHED = 81, False, "The group is full: it has group.max.size members."
    FENCED_INSTANCE_ID = 82, False, "Another member has joined with the same group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (
        83,
        True,
        "No replica that could lead the partition is available.",
    )
    ELECTION_NOT_NEEDED = 84, True, "The partition has the wanted leader already."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition's replicas are not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = (
        86,
        False,
        "The group still subscribes to the topic, so its offsets stay.",
    )
    INVALID_RECORD = 87, False, "The broker's checks refused a record; the response names it."
    UNSTABLE_OFFSET_COMMIT = (
        88,
        True,
        "An open transaction still holds offsets of this group; try again.",
    )
    THROTTLING_QUOTA_EXCEEDED = (
        89,
        True,
        "A quota is used up; wait for the throttle time, then try again.",
    )
    PRODUCER_FENCED = (
        90,
        False,
        "A newer producer with the same transactional id has fenced this one.",
    )
    RESOURCE_NOT_FOUND = 91, False, "What the request refers to does not exist."
    DUPLICATE_RESOURCE = 92, False, "The request names something twice, or it exists already."
    UNACCEPTABLE_CREDENTIAL = (
        93,
        False,
        "The credential breaks the rules: user name, salt or iterations.",
    )
    INCONSISTENT_VOTER_SET = (
        94,
        False,
        "The sender or the receiver is not in the other's set of voters.",
    )
    INVALID_UPDATE_VERSION = (
        95,
        False,
        "The update was made for another version of what it changes.",
    )
    FEATURE_UPDATE_FAILED = 96, False, "The feature could not be set to the requested level."
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        False,
        "The forwarded request's principal could not be read.",
    )
    SNAPSHOT_NOT_FOUND = 98, False, "The broker does not hold this snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position is negative or beyond the end of the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This broker does not know the topic id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A live broker has registered with this node id."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker has registered with this node id."
    INCONSISTENT_TOPIC_ID = (
        103,
        True,
        "The topic id is not the log's: the topic has been recreated.",
    )
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id is another cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        True,
        "Topic ids and names were mixed in one fetch session; start a new one.",
    )
    INELIGIBLE_REPLICA = 107, False, "A replica is not fit to join the in-sync set."
    NEW_LEADER_ELECTED = (
        108,
        False,
        "The change of the in-sync set gave the partition another leader.",
    )
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset is now in remote storage only."
    FENCED_MEMBER_EPOCH = (
        110,
        False,
        "The coordinator fenced the member's epoch; give up all partitions and join again.",
    )
    UNRELEASED_INSTANCE_ID = (
        111,
        False,
        "Another member still uses this group.instance.id; it must leave first.",
    )
    UNSUPPORTED_ASSIGNOR = 112, False, "The coordinator does not offer this assignor."
    STALE_MEMBER_EPOCH = (
        113,
        False,
        "The member's epoch is old; learn the new one by a heartbeat, then try again.",
    )
    MISMATCHED_ENDPOINT_TYPE = (
        114,
        False,
        "A controller received a request for brokers, or the reverse.",
    )
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This kind of endpoint cannot be requested here."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller with this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription has changed; fetch it again."
    TELEMETRY_TOO_LARGE = 118, False, "The pushed telemetry exceeds what the broker accepts."
    INVALID_REGISTRATION = 119, False, "The controller refuses how the broker describes itself."
    TRANSACTION_ABORTABLE = (
        120,
        False,
        "The transaction cannot continue; abort it, then begin another.",
    )
    INVALID_RECORD_STATE = (
        121,
        False,
        "The record cannot be acknowledged: it is not (or no longer) held here.",
    )
    SHARE_SESSION_NOT_FOUND = (
        122,
        True,
        "The broker has dropped the share session; start a new one.",
    )
    INVALID_SHARE_SESSION_EPOCH = (
        123,
        True,
        "The share session's epoch is not the expected one; start a new session.",
    )
    FENCED_STATE_EPOCH = 124, False, "The share state was written by a newer epoch."
    INVALID_VOTER_KEY = 125, False, "The voter's id and directory are not those of the receiver."
    DUPLICATE_VOTER = 126, False, "The set of voters has this voter already."
    VOTER_NOT_FOUND = 127, False, "The set of voters does not have this voter."
    INVALID_REGULAR_EXPRESSION = (
        128,
        False,
        "The subscription's regular expression cannot be parsed.",
    )
    REBOOTSTRAP_REQUIRED = (
        129,
        False,
        "The client's view of the cluster is out of date; begin at the bootstrap servers.",
    )
    STREAMS_INVALID_TOPOLOGY = 130, False, "The streams topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The streams topology's epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The streams group has a newer topology than this member."
    SHARE_SESSION_LIMIT_REACHED = (
        133,
        True,
        "The broker can hold no more share sessions; try again later.",
    )


# Codes that Kafka's own clients treat as stale metadata (InvalidMetadataException).
_STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


def code_of(error: BaseException) -> ErrorCode:
    """Return the error code for the response to a request that failed with this error."""
    match error:
        case ApiError():
            return error.code
        case Unavailable() | Corrupt():
            return ErrorCode.KAFKA_STORAGE_ERROR
        case Conflict():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        case Error():
            return ErrorCode.INVALID_REQUEST
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR
