"""The decorator of generated message classes: ``dataclass(slots=True)`` for a sixth of the import.

Importing a client makes some ninety of these classes, and uses half of them. A dataclass compiles
three methods for each. Here ``==`` and ``repr`` are shared, and ``__init__`` is compiled when the
first object of a class is made.

CPU of a process that imports all 99 classes, above that of one that imports their base, median of
15: 9 ms with this decorator, 54 ms as dataclasses, 25 ms as ``msgspec.Struct`` (15 of them to import
msgspec). All of a producer and a consumer: 421, 451 and 429 ms. Objects of msgspec are
made in 0.15 µs, these in 0.36 µs. That is not worth a native package that every installation needs.
Modules with ``__getattr__`` (PEP 562) would save nothing: ``batchval --help`` and audits import no
messages, and a client imports only those that it sends and reads. Measured 2026-11-29, two shared
cores of an AMD EPYC, Python 3.11.7, msgspec 0.22.0, all compiled to .pyc.

``read`` and ``write`` follow layouts (below). As Python functions of each
class they took twice the import (33 ms against 17, next to other programs), 1.2 times the CPU to
write and 1.9 times to read (the sum over all messages, first and last version).

    layout   = ["[]"] type ["@" versions] ["?" [versions]] ["#" tag] ["!"]
    versions = [first] "-" [last]

``type`` is Kafka's name of a type, or a message class of the same module. ``[]`` is an array of it.
``@`` has the versions that have the field (without it: all), ``?`` those in which it may be null
(without versions: all), ``#`` the tag of a tagged field. ``!``: a version without the field is not
written where the value differs from the default. Two layouts have no bytes of their own:
``version``, the version that was read, and ``tags``, the tagged fields that no other field has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field
from dataclasses import field as plain_field
from functools import partial
from typing import Any, Final, TypeVar, dataclass_transform

from batchval.protocol.apis import APIS
from batchval.protocol.structs import StructLayout

__all__ = ["LAYOUT", "field", "holds", "message_class", "prepare"]

T = TypeVar("T")

LAYOUT: Final = re.compile(
    r"(?P<array>\[\])?(?P<type>\w+)(?:@(?P<versions>\d*-\d*))?(?:\?(?P<nullable>(?:\d*-\d*)?))?"
    r"(?:#(?P<tag>\d+))?(?P<needed>!)?"
)

#: Classes of which no object has been made, with their defaults by field.
_unprepared: dict[Any, dict[str, Any]] = {}


def prepare() -> None:
    """Compile what is left of the classes until now, 0.2 ms each: no first object takes longer."""
    while _unprepared:
        kind, defaults = _unprepared.popitem()
        type.__setattr__(kind, "__init__", _init(defaults))


def field(
    layout: str,
    *,
    default: Any = MISSING,
    factory: Callable[[], Any] | None = None,
    kw_only: bool = False,
) -> Any:
    """Return a field with its layout (the module has the grammar) and the default
    or what makes one.
    """
    made: Any = MISSING if factory is None else factory
    content = {"layout": layout}
    return plain_field(default=default, default_factory=made, kw_only=kw_only, metadata=content)


@dataclass_transform(field_specifiers=(field, plain_field))
def message_class(cls: type[T]) -> type[T]:
    """Return the class with slots for its annotated fields, ``__init__``, ``==`` and ``repr``; one
    with an ``api_key`` has its API's versions too. Fields of a base stand after its own.

    Annotations must be strings (``from __future__ import annotations``), as in generated modules.
    """
    content = dict(cls.__dict__)
    names = tuple(
        name for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")
    )
    own = {name: content.pop(name, MISSING) for name in names}
    inherited = getattr(getattr(cls, "layout", None), "fields", {})
    at_end = {name for name, one in own.items() if getattr(one, "kw_only", False) is True}
    defaults = {name: one for name, one in own.items() if name not in at_end} | inherited
    defaults |= {name: own[name] for name in names if name in at_end}
    for name in ("__dict__", "__weakref__"):
        content.pop(name, None)
    content |= {"__slots__": names, "__match_args__": tuple(defaults), "__hash__": None}
    content |= {"__init__": _first_init(defaults), "__eq__": _equal, "__repr__": _shown}
    if "api_key" in content:
        _, _, first, last, flexible_from, *_ = APIS[content["api_key"]]
        content |= {"min_version": first, "max_version": last, "flexible_from": flexible_from}
    kind: Any = type(cls)
    made: type[T] = kind(cls.__name__, cls.__bases__, content)
    made.__qualname__ = cls.__qualname__
    if "unknown_tagged_fields" in defaults:
        layout = StructLayout(made, defaults, partial(_rows, made, defaults))
        type.__setattr__(made, "layout", layout)
    _unprepared[made] = defaults
    return made


def holds(versions: str | None, version: int) -> bool:
    """Return whether ``first-last`` has the version; None has all."""
    first, _, last = (versions or "-").partition("-")
    return int(first or 0) <= version and (not last or version <= int(last))


def _rows(kind: type[Any], fields: dict[str, Field[Any]], version: int) -> list[tuple[Any, ...]]:
    """Return the rows of a version for StructLayout."""
    known = vars(sys.modules[kind.__module__])
    rows = []
    for name, one in fields.items():
        layout = LAYOUT.fullmatch(one.metadata["layout"])
        if layout is None:
            raise TypeError(f"{kind.__name__}.{name}: invalid layout {one.metadata['layout']!r}")
        of = layout["type"]
        if of == "tags":
            continue
        is_version = of == "version"
        tag = -1 if layout["tag"] is None else int(layout["tag"])
        nulls = layout["nullable"]
        nullable = nulls is not None and holds(nulls, version)
        row = (
            *(name, "".join(word.capitalize() for word in name.split("_"))),
            version if is_version else one.default,
            None if one.default_factory is MISSING else one.default_factory,
            *(tag, of, layout["array"] is not None),
            not is_version and holds(layout["versions"], version),
            *(layout["needed"] is not None, nullable, nulls is not None and not nullable),
            known[of].layout if of[0].isupper() else None,
        )
        rows.append(row)
    return rows


def _first_init(defaults: dict[str, Any]) -> Callable[..., None]:
    """Return an ``__init__`` that puts the compiled one into its place, and calls it."""

    def __init__(self: Any, *args: Any, **more: Any) -> None:
        compiled = _init(defaults)
        for kind in type(self).__mro__:
            if kind.__dict__.get("__init__") is __init__:  # another thread may have been here
                type.__setattr__(kind, "__init__", compiled)
                _unprepared.pop(kind, None)
        compiled(self, *args, **more)

    return __init__


def _init(defaults: dict[str, Any]) -> Callable[..., None]:
    known: dict[str, Any] = {"MISSING": MISSING}
    plain: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    for name, default in defaults.items():
        spec = default if isinstance(default, Field) else plain_field(default=default)
        value = name
        if spec.default_factory is not MISSING:
            known[f"make_{name}"] = spec.default_factory
            value = f"make_{name}() if {name} is MISSING else {name}"
            parameter = f"{name}=MISSING"
        elif spec.default is not MISSING:
            known[f"default_{name}"] = spec.default
            parameter = f"{name}=default_{name}"
        else:
            parameter = name
        (keywords if spec.kw_only is True else plain).append(parameter)
        body.append(f"    self.{name} = {value}")
    parameters = ", ".join(["self", *plain, *(["*", *keywords] if keywords else [])])
    exec("\n".join([f"def __init__({parameters}):", *body]), known)
    found: Callable[..., None] = known["__init__"]
    return found


def _equal(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__match_args__)


def _shown(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({fields})"
