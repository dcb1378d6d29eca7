"""The base of all generated messages: headers, and frames from messages and back.

    request   int32 length, int16 api_key, int16 api_version, int32 correlation_id,
              nullable string client_id (never compact), tagged fields where the version is
              flexible; then the body
    response  int32 length, int32 correlation_id, tagged fields where the version is flexible (but
              never for ApiVersions, whose reader may not know the version yet); then the body

Versions, types and defaults are those of Kafka's message definitions; see
``batchval.protocol.messages``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.message_class import field, message_class
from batchval.protocol.primitives import Reader, Writer
from batchval.protocol.structs import StructLayout

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "Chunks",
    "Message",
    "Records",
    "Request",
    "RequestHeader",
    "Response",
    "Struct",
    "Tags",
    "read_header",
]

#: One frame in pieces, for writelines; the first starts with the frame's length (int32).
Chunks = list[bytes | memoryview]

#: Tagged fields that the definitions do not know, kept as they came.
Tags = tuple[tuple[int, bytes], ...]

#: Record batches: the passed object when written, a slice of the frame when read.
Records = bytes | bytearray | memoryview

# what Cython says of a value that does not fit its field
_UNWRITABLE = (OverflowError, TypeError, AttributeError, UnicodeEncodeError)


@dataclass(slots=True)
class RequestHeader:
    """The header of a request: version 2 (with tagged fields) where the request's version is
    flexible, else 1.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    unknown_tagged_fields: Tags = ()

    def write(self, w: Writer) -> None:
        """Write it; ``w.flexible`` decides which."""
        flexible = w.flexible
        w.int16(self.api_key)
        w.int16(self.api_version)
        w.int32(self.correlation_id)
        w.flexible = False
        w.nullable_string(self.client_id)
        w.flexible = flexible
        w.tags(self.unknown_tagged_fields)


@message_class
class Struct:
    """A struct of a message: fields that lie together in each version."""

    layout: ClassVar[StructLayout]

    unknown_tagged_fields: Tags = field("tags", default=(), kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        """Return the fields of this version, in order."""
        struct: Self = cls.layout.read(cls, r, version)
        return struct

    def write(self, w: Writer, version: int) -> None:
        """Write the fields of this version, in order."""
        self.layout.write(self, w, version)


class Message(Struct):
    """A request or a response. ``flexible_from`` is the first version with compact lengths and
    tagged fields.
    """

    __slots__ = ()

    api_key: ClassVar[int]
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_from: ClassVar[int]

    @classmethod
    def check_version(cls, version: int) -> None:
        """Raise ProtocolError for a version that is not known here."""
        if not cls.min_version <= version <= cls.max_version:
            known = f"{cls.min_version} to {cls.max_version}"
            raise ProtocolError(
                f"{cls.__name__} version {version} is not known here (but {known} are)"
            )


class Response(Message):
    """A response. Its version is that of the request, so it is not kept."""

    __slots__ = ()

    def encode(self, correlation_id: int, api_version: int) -> Chunks:
        """Return the whole frame: length, header, body; for tests and for a gate that answers
        itself.
        """
        self.check_version(api_version)
        w = Writer(api_version >= self.flexible_from, has_length=True)
        try:
            w.int32(correlation_id)
            if self.api_key != ApiKey.API_VERSIONS:
                w.tags(())
            self.layout.write(self, w, api_version)
        except _UNWRITABLE as error:
            raise ProtocolError(f"{type(self).__name__} cannot be written: {error}") from None
        return w.finish()

    @classmethod
    def decode(cls, frame: Buffer, api_version: int) -> Self:
        """Return the response in a frame (its header first, without the length).

        Bytes after its end are ignored, as Kafka's own clients ignore them: librdkafka's mock
        cluster sends one after a flexible Metadata answer. In a request they are an error
        (``Request.parse``).

        Raises ProtocolError.
        """
        cls.check_version(api_version)
        r = Reader(frame, api_version >= cls.flexible_from)
        r.int32()
        if cls.api_key != ApiKey.API_VERSIONS:
            r.unknown_tags()
        return cls.read(r, api_version)


ResponseT = TypeVar("ResponseT", bound=Response)


@message_class
class Request(Message, Generic[ResponseT]):
    """A request at one version; it satisfies ``batchval.network.request.AnyRequest``."""

    response_class: ClassVar[type[Any]]

    #: what is written and read
    api_version: int = field("version", kw_only=True)

    @property
    def expects_response(self) -> bool:
        """Return whether a response follows: False for a Produce request with acks=0."""
        return getattr(self, "acks", 1) != 0 or self.api_key != ApiKey.PRODUCE

    def encode(self, correlation_id: int, client_id: str | None) -> Chunks:
        """Return the whole frame: length, header, body. Record batches are in it as the slices they
        were passed as.
        """
        version = self.api_version
        self.check_version(version)
        w = Writer(version >= self.flexible_from, has_length=True)
        try:
            RequestHeader(self.api_key, version, correlation_id, client_id).write(w)
            self.layout.write(self, w, version)
        except _UNWRITABLE as error:
            raise ProtocolError(f"{type(self).__name__} cannot be written: {error}") from None
        return w.finish()

    def decode(self, frame: Buffer) -> ResponseT:
        """Return the response in a frame (its header first, without the length). Raises
        ProtocolError.

        A broker that does not know a version of ApiVersions answers in version 0 (KIP-511); so it
        is read then.
        """
        response: ResponseT
        try:
            response = self.response_class.decode(frame, self.api_version)
        except ProtocolError:
            if self.api_key != ApiKey.API_VERSIONS or self.api_version == 0:
                raise
            response = self.response_class.decode(frame, 0)
        return response

    @classmethod
    def parse(cls, frame: Buffer) -> tuple[RequestHeader, Self]:
        """Return header and request of a frame (without its length), whose key must be this
        class's.
        """
        r = Reader(frame)
        header = read_header(r, cls.flexible_from)
        if header.api_key != cls.api_key:
            raise ProtocolError(
                f"{cls.__name__} has the key {cls.api_key}, not {header.api_key}", 0
            )
        cls.check_version(header.api_version)
        request = cls.read(r, header.api_version)
        r.finish()
        return header, request


def read_header(r: Reader, flexible_from: int) -> RequestHeader:
    """Return a request's header; the reader stands at the body afterwards and knows whether that is
    flexible.
    """
    r.flexible = False
    header = RequestHeader(r.int16(), r.int16(), r.int32(), r.nullable_string())
    r.flexible = header.api_version >= flexible_from
    header.unknown_tagged_fields = r.unknown_tags()
    return header
