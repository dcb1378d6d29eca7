from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, final

from numpy.typing import NDArray
from typing_extensions import Buffer

from batchval.core.batches.columns import BatchColumns, CheckedRow
from batchval.core.batches.result import ValidationResult
from batchval.kafka_versions import Release
from batchval.policy import TopicPolicy
from batchval.rules import Rule
from batchval.types import AppendOrigin, AppendOriginName, CompressionName

# on Python 3.11 numpy's own types do not say that an array is a buffer
_Buffer: TypeAlias = Buffer | NDArray[Any]
_Mode: TypeAlias = Literal["strict", "kafka"]
_Profile: TypeAlias = Literal["produce", "log"]
_Origin: TypeAlias = AppendOrigin | AppendOriginName
_ClaimsPolicy: TypeAlias = Literal["ignore", "verify", "trust"]
# (the bytes of a tag or None, what to make of the claims)
_Claims: TypeAlias = tuple[_Buffer | None, _ClaimsPolicy]
_Extras: TypeAlias = Mapping[str, str] | Mapping[Rule, str] | Mapping[str | Rule, str]

TAILS: Final[dict[str, tuple[int, int, int]]]
TAIL_TEXTS: Final[dict[str, str]]

# What BatchColumns.result calls; made by LogValidator alone.
@final
class RejudgeAtRest:
    def __call__(self, position: int, length: int, i: int) -> ValidationResult: ...

@final
class Rejudge:
    def __call__(self, start: int, length: int, i: int) -> ValidationResult: ...

@final
class LogValidator:
    def __init__(
        self,
        policy: TopicPolicy | None = None,
        *,
        mode: _Mode = "strict",
        profile: _Profile = "produce",
        extras: _Extras | None = None,
        max_decompressed_bytes: int | None = None,
        clock_ns: Callable[[], int] | None = None,
        kafka_version: str | Release = "4.4.0",
    ) -> None: ...
    @property
    def policy(self) -> TopicPolicy: ...
    @property
    def mode(self) -> _Mode: ...
    @property
    def profile(self) -> _Profile: ...
    @property
    def kafka_version(self) -> str: ...
    @property
    def max_decompressed_bytes(self) -> int | None: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __copy__(self) -> LogValidator: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> LogValidator: ...
    def with_policy(self, policy: TopicPolicy) -> LogValidator: ...
    def check(
        self,
        buffer: _Buffer,
        *,
        now_ms: int | None = None,
        origin: _Origin = "CLIENT",
        produce_version: int = 9,
        first_offset: int = 0,
        leader_epoch: int = 0,
        to_magic: int = 2,
        claims: _Claims | None = None,
    ) -> ValidationResult: ...
    def check_batches(
        self,
        buffer: _Buffer,
        position: int = 0,
        *,
        deep: bool = True,
        trust_claims: tuple[float, bytes] | None = None,
    ) -> BatchColumns[CheckedRow]: ...
    def rejudge_at_rest(
        self,
        buffer: _Buffer,
        position: int,
        *,
        deep: bool = True,
        trust_claims: tuple[float, bytes] | None = None,
    ) -> ValidationResult: ...
    def check_ranges(
        self,
        buffer: _Buffer,
        ranges: Sequence[tuple[int, int]] | _Buffer | None = None,
        policies: TopicPolicy | Sequence[TopicPolicy] | None = None,
        *,
        now_ms: int | None = None,
        origin: _Origin = "CLIENT",
        produce_version: int = 9,
        first_offset: int = 0,
        leader_epoch: int = 0,
        to_magic: int = 2,
        claims: _Claims | Sequence[_Claims | None] | None = None,
    ) -> BatchColumns[CheckedRow]: ...
    def validate(
        self,
        buffer: _Buffer,
        *,
        now_ms: int | None = None,
        first_offset: int = 0,
        leader_epoch: int = 0,
        in_place: bool = False,
        origin: _Origin = "CLIENT",
        produce_version: int = 9,
        to_magic: int = 2,
        claims: _Claims | None = None,
    ) -> ValidationResult: ...
    def scan_produce_request(
        self,
        partitions: Sequence[_Buffer | None],
        policies: TopicPolicy | Sequence[TopicPolicy] | None = None,
        *,
        produce_version: int = 9,
    ) -> list[ValidationResult] | None: ...
    def check_produce_request(
        self,
        partitions: Sequence[_Buffer | None],
        policies: TopicPolicy | Sequence[TopicPolicy] | None = None,
        *,
        now_ms: int,
        produce_version: int = 9,
        claims: _Claims | Sequence[_Claims | None] | None = None,
    ) -> list[ValidationResult]: ...
    def check_request(self, buffer: _Buffer, *, produce_version: int = 9) -> ValidationResult: ...
    def analyze(
        self, buffer: _Buffer, *, origin: _Origin = "CLIENT", leader_epoch: int = 0
    ) -> ValidationResult: ...
    def validate_messages_and_assign_offsets(
        self,
        buffer: _Buffer,
        *,
        now_ms: int | None = None,
        source: CompressionName | None = None,
        first_offset: int = 0,
        leader_epoch: int = 0,
        origin: _Origin = "CLIENT",
        to_magic: int = 2,
        in_place: bool = False,
    ) -> ValidationResult: ...
