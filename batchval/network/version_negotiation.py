"""The API versions of a node: ApiVersions, the first request of every connection.

A broker that does not know the version asked with answers error 35 in version 0's format, with the
versions that it does know (KIP-511), or with nothing that can be read: then version 0 is asked.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from batchval.errors import ErrorCode
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ApiVersions"]

#: Bytes of an answer that is read: Kafka 4.4's has 1 KiB.
MAX_ANSWER: Final = 64 << 10
_ERROR_CODE = struct.Struct(">4xh")  # after the correlation id, in every version


class _Ask(ApiVersionsRequest):
    """An ApiVersions request whose answer may be in version 0."""

    __slots__ = ()

    def decode(self, frame: Buffer) -> ApiVersionsResponse:
        size = memoryview(frame).nbytes
        if size > MAX_ANSWER:
            raise ProtocolError(f"it has {size} bytes, at most {MAX_ANSWER} are allowed")
        if (
            size < _ERROR_CODE.size
            or _ERROR_CODE.unpack_from(frame)[0] != ErrorCode.UNSUPPORTED_VERSION
        ):
            return super().decode(frame)
        try:
            return ApiVersionsResponse.decode(frame, 0)
        except ProtocolError:
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


class ApiVersions:
    """A factory of ApiVersions requests with the name and version of the software (KIP-511)."""

    latest = ApiVersionsRequest.max_version

    def __init__(
        self, software_name: str = "batchval", software_version: str | None = None
    ) -> None:
        self.software_name = software_name
        self.software_version = software_version or _version()

    def __call__(self, version: int) -> _Ask:
        """Return the request of that version."""
        return _Ask(self.software_name, self.software_version, api_version=version)


def _version() -> str:
    from importlib import metadata  # a fifth of the time in which the clients are imported

    try:
        return metadata.version("batchval")
    except metadata.PackageNotFoundError:  # not installed, only on the path
        return "0"
