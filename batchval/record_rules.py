"""Rules that a topic's owner sets for single records: schema ids, sizes, headers, tombstones, keys.

They are checked after Kafka's own rules accepted the batch. Control batches are not checked. Names
of headers are compared as UTF-8.

Where serializers put the id of a schema:

    start of a value or key   int8 magic 0 | int32 id                  Confluent's wire format
    header of 4 bytes         int32 id
    header of 5 bytes         int8 version 0 | int32 id                Confluent's SchemaId
    header of 8 bytes         int64 id                                 Apicurio: globalId, contentId
    header of 17 bytes        int8 version 1 | 16 bytes of a GUID      Confluent's GUIDs

All numbers are big-endian.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias, get_args
from weakref import WeakKeyDictionary

from batchval.errors import ArgumentTypeError, ArgumentValueError, shown_value

__all__ = [
    "KEY_SCHEMA_ID_HEADER",
    "MAX_HEADER_NAMES",
    "MAX_HEADER_NAME_BYTES",
    "MAX_SCHEMA_IDS",
    "VALUE_SCHEMA_ID_HEADER",
    "RecordRules",
    "SchemaIds",
    "SchemaPlace",
    "TombstonesWord",
]

SchemaPlace: TypeAlias = Literal["value", "key", "header"]
#: The subjects of a schema.
SchemaSubject: TypeAlias = Literal["value", "key"]
TombstonesWord: TypeAlias = Literal["allow", "refuse"]
_PLACES: Final[tuple[str, ...]] = get_args(SchemaPlace)
_SUBJECTS: Final[tuple[str, ...]] = get_args(SchemaSubject)
_TOMBSTONES: Final[tuple[str, ...]] = get_args(TombstonesWord)

#: Confluent's names (io.confluent.kafka.serializers.schema.id.SchemaId).
VALUE_SCHEMA_ID_HEADER: Final = "__value_schema_id"
KEY_SCHEMA_ID_HEADER: Final = "__key_schema_id"

#: Limits of the walk over records, which keeps one bit for each name and one buffer for a name.
MAX_HEADER_NAMES: Final = 64
MAX_HEADER_NAME_BYTES: Final = 255
#: Entries of ``RecordRules.schema_id``.
MAX_SCHEMA_IDS: Final = 8

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_GUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHOWN_IDS: Final = 5


@dataclass(frozen=True, slots=True, repr=False)
class SchemaIds:
    """The schema ids that a record may carry at one place.

    ``place``   start of the ``value`` or of the ``key``, or a ``header``
    ``ids``     the numbers that are allowed; an empty set allows none
    ``header``  name of the header; empty: Confluent's name for ``of``
    ``of``      what the header's schema describes; the start of a value or key describes itself
    ``guids``   the GUIDs that are allowed in a header, as ``str(uuid.UUID)`` writes them

    Where both ``ids`` and ``guids`` are None, each id that is well-formed is allowed. A null value
    (a tombstone) and a null key have no schema, so nothing is asked of them. Of several headers of
    one name the last counts, as for Kafka's deserializers.
    """

    place: SchemaPlace = "value"
    ids: frozenset[int] | None = None
    header: str = ""
    of: SchemaSubject | Literal[""] = ""
    guids: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.place not in _PLACES:
            raise _wrong("schema_id place", self.place, f"one of {', '.join(_PLACES)}")
        if self.place == "header":
            subject = self.of or "value"
            if subject not in _SUBJECTS:
                raise _wrong("schema_id of", self.of, f"one of {', '.join(_SUBJECTS)}")
            default = VALUE_SCHEMA_ID_HEADER if subject == "value" else KEY_SCHEMA_ID_HEADER
            object.__setattr__(self, "of", subject)
            if self.header == "":
                object.__setattr__(self, "header", default)
            _check_name("schema_id header", self.header)
        else:
            for name in ("header", "guids"):
                if getattr(self, name) not in ("", None):
                    raise ArgumentValueError(
                        f"schema_id {name} needs place header, not {self.place}"
                    )
            if self.of not in ("", self.place):
                raise _wrong("schema_id of", self.of, f"{self.place} where place is {self.place}")
            object.__setattr__(self, "of", self.place)
        most = _LONG_MAX if self.place == "header" else _INT_MAX
        if self.ids is not None:
            if not isinstance(self.ids, frozenset):
                raise _wrong_type(
                    "schema_id ids", self.ids, "a frozenset of whole numbers, or None for any id"
                )
            for number in self.ids:
                if type(number) is not int or not 0 <= number <= most:
                    raise _wrong("a schema id", number, f"a whole number from 0 to {most}")
        if self.guids is not None:
            if not isinstance(self.guids, frozenset):
                raise _wrong_type("schema_id guids", self.guids, "a frozenset of GUIDs, or None")
            guids: frozenset[object] = self.guids
            for guid in guids:
                if not isinstance(guid, str) or not _GUID.fullmatch(guid):
                    example = "89791762-2336-4186-9674-299b90a802e2"
                    raise _wrong(
                        "a schema GUID", guid, f"a GUID in lower case, for example {example}"
                    )

    @property
    def any_allowed(self) -> bool:
        """Return True where each well-formed id is allowed."""
        return self.ids is None and self.guids is None

    def __repr__(self) -> str:
        """Show the fields that are set, and of long sets the first numbers."""
        shown = [f"place={self.place!r}"]
        if self.place == "header":
            shown += [f"header={self.header!r}", f"of={self.of!r}"]
        for name in ("ids", "guids"):
            values = getattr(self, name)
            if values is not None:
                shown.append(f"{name}={_shown_set(values)}")
        return f"SchemaIds({', '.join(shown)})"

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> SchemaIds:
        """Return the schema ids of a mapping, for example ``{"place": "key", "ids": [1, 2]}``.

        ``ids`` and ``guids`` are lists that are not empty; GUIDs may be in upper case.
        Raises ArgumentTypeError and ArgumentValueError, which name the key.
        """
        values = _checked_keys(mapping, "schema_id", cls)
        for name in ("ids", "guids"):
            if values.get(name) is not None:
                items = _items(f"schema_id {name}", values[name])
                if not items:
                    raise ArgumentValueError(
                        f"schema_id {name} is empty: list at least one, or omit it for any id"
                    )
                if name == "guids":
                    items = [item.lower() if isinstance(item, str) else item for item in items]
                values[name] = _frozen(f"schema_id {name}", items)
        return cls(**_without_none(values))

    def to_mapping(self) -> dict[str, Any]:
        """Return the mapping of these schema ids: JSON can hold it."""
        found: dict[str, Any] = {"place": self.place}
        if self.place == "header":
            found |= {"header": self.header, "of": self.of}
        for name in ("ids", "guids"):
            if (values := getattr(self, name)) is not None:
                found[name] = sorted(values)
        return found


@dataclass(frozen=True, slots=True, weakref_slot=True)
class RecordRules:
    """The rules of a topic's owner for each record. Immutable, hashable; the defaults check
    nothing.

    ``schema_id``          one SchemaIds, or a tuple of them, which all must hold
    ``max_key_bytes``      a null key has no size
    ``max_value_bytes``    a null value has no size
    ``max_headers``        the number of headers of one record
    ``required_headers``   names of which each record has at least one header each
    ``forbidden_headers``  names of which no record has a header
    ``tombstones``         ``refuse`` refuses null values
    ``utf8_keys``          keys must be UTF-8; a null key is not asked

    Messages of magic 0 and 1 have no headers.
    """

    schema_id: SchemaIds | tuple[SchemaIds, ...] | None = None
    max_key_bytes: int | None = None
    max_value_bytes: int | None = None
    max_headers: int | None = None
    required_headers: tuple[str, ...] = ()
    forbidden_headers: tuple[str, ...] = ()
    tombstones: TombstonesWord = "allow"
    utf8_keys: bool = False

    def __post_init__(self) -> None:
        for name in ("max_key_bytes", "max_value_bytes", "max_headers"):
            number = getattr(self, name)
            if number is not None and (type(number) is not int or not 0 <= number <= _INT_MAX):
                raise _wrong(name, number, f"a whole number from 0 to {_INT_MAX}")
        for name in ("required_headers", "forbidden_headers"):
            names = getattr(self, name)
            if not isinstance(names, tuple):
                raise _wrong_type(name, names, "a tuple of header names")
            if len(names) > MAX_HEADER_NAMES:
                raise ArgumentValueError(
                    f"{name} has {len(names)} names: at most {MAX_HEADER_NAMES} are allowed"
                )
            for header in names:
                _check_name(f"a name in {name}", header)
            if len(set(names)) < len(names):
                twice = next(header for header in names if names.count(header) > 1)
                raise ArgumentValueError(f"{name} has {shown_value(twice)} twice")
        both = sorted(set(self.required_headers) & set(self.forbidden_headers))
        if both:
            raise ArgumentValueError(
                f"header {shown_value(both[0])} is both required and forbidden"
            )
        if self.tombstones not in _TOMBSTONES:
            raise _wrong("tombstones", self.tombstones, f"one of {', '.join(_TOMBSTONES)}")
        if not isinstance(self.utf8_keys, bool):
            raise _wrong("utf8_keys", self.utf8_keys, "true or false")
        self._check_schema_ids()

    def _check_schema_ids(self) -> None:
        if self.schema_id is not None and not isinstance(self.schema_id, SchemaIds | tuple):
            raise _wrong_type("schema_id", self.schema_id, "a SchemaIds, a tuple of them, or None")
        seen: set[tuple[str, str]] = set()
        for schema in self.schema_ids:
            if not isinstance(schema, SchemaIds):
                raise _wrong_type("an entry of schema_id", schema, "a SchemaIds")
            if (schema.place, schema.header) in seen:
                place = (
                    schema.place
                    if schema.place != "header"
                    else f"header {shown_value(schema.header)}"
                )
                raise ArgumentValueError(f"schema_id has two entries for the {place}")
            seen.add((schema.place, schema.header))
            if schema.place == "header" and schema.header in self.forbidden_headers:
                raise ArgumentValueError(
                    f"header {shown_value(schema.header)} holds a schema_id and is forbidden"
                )
        if len(seen) > MAX_SCHEMA_IDS:
            raise ArgumentValueError(
                f"schema_id has {len(seen)} entries: at most {MAX_SCHEMA_IDS} are allowed"
            )

    @property
    def schema_ids(self) -> tuple[SchemaIds, ...]:
        """Return ``schema_id`` as a tuple."""
        if self.schema_id is None:
            return ()
        return (self.schema_id,) if isinstance(self.schema_id, SchemaIds) else self.schema_id

    @property
    def asks_nothing(self) -> bool:
        """Return True where no record can break a rule."""
        return not self.schema_ids and all(
            getattr(self, field.name) == field.default
            for field in fields(self)
            if field.name != "schema_id"
        )

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> RecordRules:
        """Return the rules of a mapping, as YAML or JSON hold it.

        For example ``{"schema_id": {"ids": [1, 2]}, "max_key_bytes": 100}``. ``schema_id`` is a
        mapping (see SchemaIds.from_mapping) or a list of mappings; headers are lists of names.
        A value of None stands for a key that is not set.

        Raises ArgumentTypeError and ArgumentValueError, which name the key.
        """
        values = _checked_keys(mapping, "record rule", cls)
        schema = values.get("schema_id")
        if isinstance(schema, Mapping):
            values["schema_id"] = SchemaIds.from_mapping(schema)
        elif schema is not None:
            listed = _items("schema_id", schema, "a mapping or a list of mappings")
            values["schema_id"] = tuple(map(SchemaIds.from_mapping, listed))
        for name in ("required_headers", "forbidden_headers"):
            if values.get(name) is not None:
                values[name] = tuple(_items(name, values[name]))
        return cls(**_without_none(values))

    def to_mapping(self) -> dict[str, Any]:
        """Return the mapping of these rules, without defaults: JSON can hold it."""
        found = {
            field.name: list(value)
            if isinstance(value := getattr(self, field.name), tuple)
            else value
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }
        if self.schema_ids:
            found["schema_id"] = [schema.to_mapping() for schema in self.schema_ids]
        else:
            found.pop("schema_id", None)
        return found


#: The compiled form of rules that are alive.
COMPILED_RULES: Final[WeakKeyDictionary[RecordRules, object]] = WeakKeyDictionary()


# ---- what both classes ask ---------------------------------------------------------------------


def _checked_keys(mapping: Mapping[str, object], what: str, kind: type[Any]) -> dict[str, Any]:
    """Return the mapping as a dict whose keys are fields of ``kind``."""
    if not isinstance(mapping, Mapping):
        raise _wrong_type(f"{what}s" if what != "schema_id" else what, mapping, "a mapping")
    known = [field.name for field in fields(kind)]
    for key in mapping:
        if key not in known:
            label = "key of schema_id" if what == "schema_id" else what
            raise ArgumentValueError(
                f"unknown {label} {shown_value(key)}: allowed are {', '.join(known)}"
            )
    return dict(mapping)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _items(name: str, value: object, expected: str = "a list") -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(
        value, Sequence | set | frozenset
    ):
        raise _wrong_type(name, value, expected)
    return list(value)


def _frozen(name: str, items: list[Any]) -> frozenset[Any]:
    try:
        return frozenset(items)
    except TypeError:  # an item that has no hash, such as a list
        raise _wrong_type(name, items, "a list of single values") from None


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str):
        raise _wrong_type(what, name, "a string")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise _wrong(what, name, "text that UTF-8 can hold") from None
    if not 0 < size <= MAX_HEADER_NAME_BYTES:
        raise _wrong(what, name, f"1 to {MAX_HEADER_NAME_BYTES} bytes of UTF-8")


def _shown_set(values: frozenset[Any]) -> str:
    first = sorted(values)[:_SHOWN_IDS]
    more = f" and {len(values) - len(first)} more" if len(values) > len(first) else ""
    return f"{{{', '.join(map(repr, first))}{more}}}"


def _wrong(what: str, value: object, allowed: str) -> ArgumentValueError:
    return ArgumentValueError(f"{what} must be {allowed}, not {shown_value(value)}")


def _wrong_type(what: str, value: object, allowed: str) -> ArgumentTypeError:
    return ArgumentTypeError(f"{what} must be {allowed}, not {shown_value(value)}")
