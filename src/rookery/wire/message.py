"""A message is a class; its annotations are its wire definition.

    class HeartbeatRequest(Message):
        group_id: GroupId
        generation_id: i32
        member_id: str
        group_instance_id: str | None = field(since=3, default=None)

Nothing is generated and nothing is parsed at import: a class keeps its annotations as text, and
`wire.table` turns them into a table for one version when that version is first used. Modules that
define messages therefore say `from __future__ import annotations`, and may name a structure above
the place where it is defined, so that a reader meets the outer message first.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
    dataclass_transform,
)

from rookery.errors import ErrorCode
from rookery.wire.fieldtext import text_of
from rookery.wire.items import Items


class Type(IntEnum):
    """How one value is laid out. The codec's interpreters switch on these numbers."""

    BOOL = 0
    I8 = 1
    I16 = 2
    I32 = 3
    I64 = 4
    U16 = 5
    U32 = 6
    F64 = 7
    UUID = 8
    ERROR = 9
    STRING = 10
    BYTES = 11
    RECORDS = 12
    STRUCT = 13
    ARRAY = 14


class FieldKind(NamedTuple):
    """The meaning of a field in any message: the handle for `wire.walk`."""

    name: str


def kind_of(mark: object) -> FieldKind:
    """Return the kind that an annotation such as `TopicName` carries, or the kind itself."""
    for entry in (mark, *getattr(mark, "__metadata__", ())):
        if isinstance(entry, FieldKind):
            return entry
    raise TypeError(f"{mark!r} marks no kind; see the list in rookery.wire.message")


class Parts(tuple["bytes | bytearray | memoryview", ...]):
    """Records in several pieces, written one after the other without joining them."""

    __slots__ = ()


i8 = Annotated[int, Type.I8]
i16 = Annotated[int, Type.I16]
i32 = Annotated[int, Type.I32]
i64 = Annotated[int, Type.I64]
u16 = Annotated[int, Type.U16]
u32 = Annotated[int, Type.U32]
f64 = Annotated[float, Type.F64]
# Sixteen raw bytes: every fetch carries some, and a `uuid.UUID` costs ten times as much to make.
Uuid = Annotated[bytes, Type.UUID]
# Passwords, keys and tokens: `repr` shows only their size.
SecretBytes = Annotated[bytes, Type.BYTES]
# Bytes that are read as a view into the frame and written without a copy.
Records: TypeAlias = Annotated[bytes | bytearray | memoryview | Parts, Type.RECORDS]

TopicName = Annotated[str, Type.STRING, FieldKind("topic name")]
TopicId = Annotated[bytes, Type.UUID, FieldKind("topic id")]
# RE2 syntax; the whole name must match.
TopicRegex = Annotated[str, Type.STRING, FieldKind("topic regex")]
PartitionId = Annotated[int, Type.I32, FieldKind("partition")]
PartitionCount = Annotated[int, Type.I32, FieldKind("partition count")]
BrokerId = Annotated[int, Type.I32, FieldKind("broker id")]
Host = Annotated[str, Type.STRING, FieldKind("host")]
Port = Annotated[int, Type.I32, FieldKind("port")]
# The controllers' APIs write the same thing in two bytes.
ShortPort = Annotated[int, Type.U16, FieldKind("port")]
RackId = Annotated[str, Type.STRING, FieldKind("rack")]
ClusterId = Annotated[str, Type.STRING, FieldKind("cluster id")]
GroupId = Annotated[str, Type.STRING, FieldKind("group id")]
MemberId = Annotated[str, Type.STRING, FieldKind("member id")]
InstanceId = Annotated[str, Type.STRING, FieldKind("group instance id")]
TransactionalId = Annotated[str, Type.STRING, FieldKind("transactional id")]
TransactionalIdRegex = Annotated[str, Type.STRING, FieldKind("transactional id regex")]
ProducerId = Annotated[int, Type.I64, FieldKind("producer id")]
ProducerEpoch = Annotated[int, Type.I16, FieldKind("producer epoch")]
# DescribeProducers writes it in four bytes.
WideProducerEpoch = Annotated[int, Type.I32, FieldKind("producer epoch")]
Offset = Annotated[int, Type.I64, FieldKind("offset")]
LeaderEpoch = Annotated[int, Type.I32, FieldKind("leader epoch")]
# Type and name, as in "User:alice".
Principal = Annotated[str, Type.STRING, FieldKind("principal")]
# The name alone, as in "alice".
User = Annotated[str, Type.STRING, FieldKind("user")]
TokenId = Annotated[str, Type.STRING, FieldKind("delegation token id")]
ClientId = Annotated[str, Type.STRING, FieldKind("client id")]
# The address that a client connects from, never one that a client connects to.
ClientHost = Annotated[str, Type.STRING, FieldKind("client host")]
# Repeated by FindCoordinator's answer: the request says whether it is a group's id or another.
CoordinatorKey = Annotated[str, Type.STRING, FieldKind("coordinator key")]

ZERO_UUID = bytes(16)

# The wire types of bare annotations.
BARE_TYPES: dict[object, Type] = {
    bool: Type.BOOL,
    str: Type.STRING,
    bytes: Type.BYTES,
    ErrorCode: Type.ERROR,
}


class _RequiredDefault:
    """The default of a field that has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _RequiredDefault()


class Field:
    """One field of a message, as written in its class."""

    __slots__ = (
        "annotation", "compact", "default", "factory", "name", "nullable", "since", "tag", "until",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 (one argument for each fact a definition can state)
        self,
        *,
        since: int = 0,
        until: int | None = None,
        nullable: int | None = None,
        default: object = REQUIRED,
        factory: Callable[[], object] | None = None,
        tag: int | None = None,
        compact: bool = True,
    ) -> None:
        self.name = ""
        self.annotation = ""
        self.since = since
        self.until = until
        self.nullable = nullable
        self.default = default
        self.factory = factory
        self.tag = tag
        self.compact = compact

    @property
    def is_required(self) -> bool:
        """Whether a constructor call must name this field."""
        return self.default is REQUIRED and self.factory is None

    def is_in(self, version: int) -> bool:
        """Whether the field is on the wire in `version`."""
        return self.since <= version and (self.until is None or version <= self.until)


def field(  # noqa: PLR0913
    *,
    since: int = 0,
    until: int | None = None,
    nullable: int | None = None,
    default: Any = REQUIRED,
    factory: Callable[[], object] | None = None,
    tag: int | None = None,
    compact: bool = True,
) -> Any:
    """Describe a field beyond its type.

    Args:
        since: the first version that has the field.
        until: the last version that has it.
        nullable: the first version in which an optional field may be null; all, if not given.
        default: what the field holds when it is not on the wire or not given.
        factory: makes the default, where that is a list.
        tag: the field is a tagged one with this number, left out while it holds its default.
        compact: False for the one string (the client id) that keeps the old form in all versions.
    """
    return Field(
        since=since,
        until=until,
        nullable=nullable,
        default=default,
        factory=factory,
        tag=tag,
        compact=compact,
    )


class MessageType(type):
    """Converts the annotations of a message class to slots and fields."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        versions: range | None = None,
        flexible: int | None = None,
        key: int | None = None,
    ) -> MessageType:
        """Take the fields out of the class body, and leave slots in their place."""
        fields: dict[str, Field] = {}
        annotations = namespace.get("__annotations__", {}) if bases else {}
        for attribute, annotation in annotations.items():
            stated = namespace.pop(attribute, REQUIRED)
            entry = stated if isinstance(stated, Field) else Field(default=stated)
            entry.name, entry.annotation = attribute, annotation
            fields[attribute] = entry
        if bases:
            namespace["__slots__"] = tuple(fields)
        namespace["__fields__"] = fields
        namespace["VERSIONS"] = versions
        namespace["FLEXIBLE"] = flexible
        namespace["KEY"] = key
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any):
        super().__init__(name, bases, namespace)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Message(metaclass=MessageType):
    """Anything that Kafka writes as a sequence of fields: a request, a response, a part of one."""

    __slots__ = ("unknown_tags",)

    __fields__: ClassVar[dict[str, Field]]
    VERSIONS: ClassVar[range | None]
    """The versions defined, for a message that stands alone."""
    FLEXIBLE: ClassVar[int | None]
    """The first version with compact lengths and tagged fields; None if there is none."""
    KEY: ClassVar[int | None]
    """The number that names the message among its kin (an API's key, a record's type)."""

    unknown_tags: dict[int, bytes] | None
    """Tagged fields that we have no name for, kept so that they can be passed on."""

    def __init__(self, **values: object) -> None:
        # The first construction of a class writes its constructor; most classes are never built
        # by hand in a given process, and writing all of them would double the start-up time.
        cls = type(self)
        cls.__init__ = _constructor(cls)  # type: ignore[method-assign] # as dataclasses do
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, name) == getattr(other, name) for name in self.__fields__
        )

    __hash__ = None  # type: ignore[assignment] # a message can change

    def __repr__(self) -> str:
        texts = (text_of(self, name, entry.annotation) for name, entry in self.__fields__.items())
        return f"{type(self).__name__}({', '.join(texts)})"

    def replace(self, **changes: object) -> Self:
        """Return a copy of this message with some fields changed."""
        values = {name: getattr(self, name) for name in self.__fields__}
        copy = type(self)(**(values | changes))
        copy.unknown_tags = self.unknown_tags
        return copy

    def __getstate__(self) -> tuple[dict[int, bytes] | None, list[object]]:
        return self.unknown_tags, [_portable(getattr(self, name)) for name in self.__fields__]

    def __setstate__(self, state: tuple[dict[int, bytes] | None, list[object]]) -> None:
        self.unknown_tags = state[0]
        for name, value in zip(self.__fields__, state[1], strict=True):
            setattr(self, name, value)


def _portable(value: object) -> object:
    """Turn a view into bytes: a view cannot leave the process."""
    return bytes(value) if isinstance(value, memoryview) else value


def _constructor(cls: type[Message]) -> Any:
    """Write the constructor that the class's fields ask for."""
    scope: dict[str, Any] = {}
    parameters, body = [], ["self.unknown_tags = None"]
    for entry in sorted(cls.__fields__.values(), key=lambda entry: not entry.is_required):
        name = entry.name
        if entry.is_required:
            parameters.append(name)
        elif entry.factory is not None:
            scope[f"make_{name}"] = entry.factory
            scope["ABSENT"] = REQUIRED
            parameters.append(f"{name}=ABSENT")
            body.append(f"if {name} is ABSENT: {name} = make_{name}()")
        else:
            scope[f"default_{name}"] = entry.default
            parameters.append(f"{name}=default_{name}")
        body.append(f"self.{name} = {name}")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n " + "\n ".join(body)
    exec(source, scope)  # noqa: S102 (the text is made of our own field names only)
    return scope["__init__"]


Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class Api(Generic[Request, Response]):
    """A request, its response, and what belongs to the pair."""

    __slots__ = (
        "_is_one_way", "flexible", "items", "key", "name", "refuse", "refuse_items", "request",
        "response", "versions",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 (one argument for each fact a definition can state)
        self,
        *,
        key: int,
        request: type[Request],
        response: type[Response],
        versions: range,
        flexible: int | None,
        refuse: Callable[[Request, ErrorCode], Response],
        items: tuple[Items, ...] = (),
        refuse_items: Callable[[Request, ErrorCode], Response] | None = None,
        is_one_way: Callable[[Request], bool] | None = None,
    ) -> None:
        """Tie both messages to their versions.

        Args:
            key: the number that a request header carries.
            request: the request's class.
            response: the response's class.
            versions: all versions that we can read and write.
            flexible: the first flexible version, or None.
            refuse: answers a request without doing it; a denial is the same in broker and proxy.
            items: the lists that `wire.partition` can cut the request by.
            refuse_items: refuses each item of a request and nothing else, so that the answer can
                be joined with that to the other items; given where `refuse` has a code for the
                whole answer.
            is_one_way: whether the client of a request reads no answer, not even an error; None
                if all requests are answered.
        """
        self.key = key
        self.request = request
        self.response = response
        self.versions = versions
        self.flexible = flexible
        self.refuse = refuse
        self.items = items
        self.refuse_items = refuse_items or refuse
        self._is_one_way = is_one_way
        self.name = request.__name__.removesuffix("Request")
        for cls in (request, response):
            cls.VERSIONS, cls.FLEXIBLE, cls.KEY = versions, flexible, key

    def is_flexible(self, version: int) -> bool:
        """Whether `version` has compact lengths and tagged fields."""
        return self.flexible is not None and version >= self.flexible

    @property
    def has_one_way_requests(self) -> bool:
        """Whether some requests are not answered: their fields decide which."""
        return self._is_one_way is not None

    def is_one_way(self, request: Request) -> bool:
        """Whether the client of a request reads no answer, not even an error."""
        return self._is_one_way is not None and self._is_one_way(request)

    def __repr__(self) -> str:
        return f"<{self.name} ({self.key}) {self.versions.start}-{self.versions.stop - 1}>"
