"""Settings from a YAML file and from the command line, and back to YAML with secrets hidden.

All faults are found in one run: each wrong value is left out of a copy, and what holds between the
other settings is checked on that copy. Each fault is one line: file, line, key, and what is wrong.
None shows a value that may be secret.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from batchval.errors import BatchvalError
from batchval.policy import KAFKA_TOPIC_KEYS, OLDER_TOPIC_KEYS, ClaimsPolicy, nearest
from batchval.proxy.checks import faults_of
from batchval.proxy.config import Settings, TopicRule
from batchval.proxy.faults import Fault, Loc, Source, lines_of, path_of
from batchval.proxy.secret import Secret
from batchval.proxy.values import STAND_IN, STAND_IN_WORD, Address

__all__ = [
    "MOST_FILE_BYTES",
    "ConfigError",
    "Draft",
    "drafted",
    "drafted_bytes",
    "drafted_file",
    "keys_of",
    "load",
    "overridden",
    "settings_from",
    "shown",
]

#: Bytes that a file of settings may have.
MOST_FILE_BYTES = 1 << 20
#: A key that is this similar to a known one was meant to be that one.
_ALIKE = 0.8
_SHOWN = 80


class ConfigError(BatchvalError):
    """What is wrong with settings, a line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems[0] if len(problems) == 1 else f"{problems[0]} (and {len(problems) - 1} more)")
        self.problems = problems


class Draft:
    """Settings and all faults that were found in them.

    ``settings``  without the wrong values: only for further checks; None where nothing is left
    ``faults``    values that are wrong, then settings that do not go together or with their files
    ``digest``    of the file's content (SHA-256)
    """

    def __init__(self, settings: Settings | None, source: Source, faults: Iterable[Fault]) -> None:
        self.settings = settings
        self.source = source
        self.faults = list(faults)
        self.digest = ""
        self._wrong_values = len(self.faults)
        self._wrong = {loc for fault in self.faults for loc in (fault.loc, *fault.reads)}

    def add(self, faults: Iterable[Fault]) -> None:
        """Add faults, without those that compare a value which is wrong itself."""
        self.faults += [fault for fault in faults if not any(self.is_wrong(loc) for loc in fault.reads)]

    def is_wrong(self, loc: Loc) -> bool:
        """Whether the value of this key, or one around it, is wrong by itself."""
        return any(loc[:i] in self._wrong for i in range(1, len(loc) + 1))

    def readable(self) -> tuple[Settings, list[str]]:
        """Return settings whose values are right, and a line for each other fault. ConfigError."""
        values, others = self.faults[: self._wrong_values], self.faults[self._wrong_values :]
        if values or self.settings is None:
            raise ConfigError(lines_of(self.faults, self.source))
        return self.settings, lines_of(others, self.source)

    def finished(self) -> Settings:
        """Return the settings. ConfigError with all faults, where there are any."""
        if self.faults or self.settings is None:
            raise ConfigError(lines_of(self.faults, self.source))
        return self.settings


def load(path: Path, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of a file. ``overrides``: values of the command line, which win. OSError,
    ConfigError.
    """
    return drafted_file(path, overrides).finished()


def drafted_file(path: Path, overrides: Mapping[str, Any] | None = None) -> Draft:
    """Return the draft of a file. OSError, ConfigError where it is not YAML."""
    with open(path, "rb") as file:
        data = file.read(MOST_FILE_BYTES + 1)
    return drafted_bytes(data, path, overrides)


def drafted_bytes(data: bytes, path: Path, overrides: Mapping[str, Any] | None = None) -> Draft:
    """Return the draft of what was read of a file. ConfigError where it is not YAML, or too
    long.
    """
    if len(data) > MOST_FILE_BYTES:
        raise ConfigError([f"{path}: longer than {MOST_FILE_BYTES} bytes"])
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigError([f"{path}: is not UTF-8"]) from None
    values, lines, twice = _parse(text, str(path))
    overrides = overrides or {}
    source = Source(str(path), lines, frozenset(tuple(key.split(".")) for key in overrides))
    draft = drafted(overridden(values, overrides), source=source, folder=path.parent, faults=twice)
    draft.digest = hashlib.sha256(data).hexdigest()
    return draft


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Return settings from what a YAML file would hold. ConfigError."""
    return drafted(values).finished()


def drafted(
    values: Mapping[str, Any],
    *,
    source: Source | None = None,
    folder: Path | None = None,
    faults: Iterable[Fault] = (),
) -> Draft:
    """Return the draft of what a YAML file would hold; relative paths start at ``folder``."""
    context = {"folder": folder or Path(os.curdir)}
    wrong: list[Fault] = []
    settings = None
    try:
        settings = Settings.model_validate(values, context=context)
    except ValidationError as error:
        problems: list[Any] = [
            {**problem, "loc": _place_in(values, problem["loc"])} for problem in error.errors(include_url=False)
        ]
        wrong = [_fault(problem, source or Source()) for problem in problems]
        copy = _copied(values)
        for problem in problems:
            _repair(copy, tuple(problem["loc"]), problem["type"])
        with contextlib.suppress(ValidationError):  # these faults would come from the repair
            settings = Settings.model_validate(copy, context=context)
    draft = Draft(settings, source or Source(), [*faults, *wrong])
    if settings is not None:
        draft.add(faults_of(settings))
    return draft


def overridden(values: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Set ``{"log.format": "json"}`` into the values. A part that is not a mapping stays: it will
    be an error.
    """
    for key, value in overrides.items():
        *parents, last = key.split(".")
        target: Any = values
        for parent in parents:
            if not isinstance(target, dict):
                break
            if target.get(parent) is None:
                target[parent] = {}
            target = target[parent]
        if isinstance(target, dict):
            target[last] = value
    return values


# ---- a copy without wrong values -----------------------------------------------------------------


def _place_in(values: Any, loc: Loc) -> Loc:
    """Return the place of a fault in the values themselves: one mapping may stand for a list of
    it.
    """
    found: list[str | int] = []
    place: Any = values
    for part in loc:
        if isinstance(part, int) and isinstance(place, dict):
            continue
        found.append(part)
        place = place[part] if _has(place, part) else None
    return tuple(found)


def _copied(value: Any) -> Any:
    """Copy mappings and lists; a value that YAML shares (``*anchor``) gets a copy for each
    place.
    """
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


def _repair(values: Any, loc: Loc, kind: str) -> None:
    """Take a wrong value out of ``values``; where one is required, put a stand-in there."""
    *parents, last = loc
    place: Any = values
    for depth, part in enumerate(parents):
        inner = place[part] if _has(place, part) else None
        if not isinstance(inner, dict | list):  # pydantic adds words of its own to a place
            parents, last = list(loc[:depth]), part
            break
        place = inner
    annotation, required = _expected(parents, last)
    if isinstance(place, dict) and (not required or kind == "extra_forbidden"):
        place.pop(last, None)
    elif isinstance(place, dict) or _has(place, last):
        place[last] = _stand_in(annotation)


def _has(place: Any, part: str | int) -> bool:
    if isinstance(place, list):
        return isinstance(part, int) and part < len(place)
    return isinstance(place, dict) and part in place


def _expected(parents: list[str | int], last: str | int) -> tuple[Any, bool]:
    """Return the type of a value, and whether it is required."""
    model = _model(parents)
    if isinstance(last, int):
        name = next((part for part in reversed(parents) if isinstance(part, str)), "")
        around = _model([part for part in parents if part != name])
        field = around.model_fields.get(_name(around, name))
        args = get_args(field.annotation) if field is not None else ()
        return (args[0] if args else None), True
    field = model.model_fields.get(_name(model, last))
    return (None, False) if field is None else (field.annotation, field.is_required())


def _stand_in(annotation: Any) -> Any:
    """Return some value of this type. No check reads it: the key counts as wrong."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if isinstance(annotation, type):
        if issubclass(annotation, BaseModel):
            fields = annotation.model_fields.values()
            keys = keys_of(annotation).values()
            return {
                key: _stand_in(field.annotation) for key, field in zip(keys, fields, strict=True) if field.is_required()
            }
        if issubclass(annotation, Address):
            return STAND_IN
        if issubclass(annotation, Path):
            return Path(os.curdir)
    if get_origin(annotation) in (list, tuple):
        return [_stand_in(get_args(annotation)[0])]
    return STAND_IN_WORD


# ---- YAML --------------------------------------------------------------------------------------------------------


def _parse(text: str, name: str) -> tuple[dict[str, Any], dict[Loc, int], list[Fault]]:
    """Return the values, the line (from 1) of each key, and the keys that stand twice."""
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        lines: dict[Loc, int] = {}
        twice: list[Fault] = []
        if root is not None:
            _walk(root, (), lines, twice, name, ())
        values = {} if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        # its own words alone: the snippet that comes with them may hold a password
        mark = error.problem_mark
        at = f":{mark.line + 1}" if mark else ""
        raise ConfigError([f"{name}{at}: is not YAML: {error.problem or error.context or 'cannot be read'}"]) from None
    except yaml.reader.ReaderError as error:
        raise ConfigError([f"{name}: is not YAML: {error.reason}"]) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{name}: is not YAML: {type(error).__name__}"]) from None
    finally:
        loader.dispose()
    if not isinstance(values, dict):
        raise ConfigError([f"{name}: must be keys and values"])
    return values, lines, twice


def _walk(
    node: yaml.Node,
    loc: Loc,
    lines: dict[Loc, int],
    twice: list[Fault],
    name: str,
    above: tuple[yaml.Node, ...],
) -> None:
    """Note the lines of all keys, and the keys that stand twice, which YAML itself would pass
    over.
    """
    if node in above:
        raise ConfigError([f"{name}:{node.start_mark.line + 1}: {path_of(loc)}: holds itself"])
    if len(lines) > MOST_FILE_BYTES // 16:
        raise ConfigError([f"{name}: has too many keys"])
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            word = key.value if isinstance(key, yaml.ScalarNode) else "?"
            line = key.start_mark.line + 1
            if word in seen:
                twice.append(Fault((*loc, word), "stands twice", line=line))
            seen.add(word)
            lines[*loc, word] = line
            _walk(value, (*loc, word), lines, twice, name, (*above, node))
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            lines[*loc, i] = value.start_mark.line + 1
            _walk(value, (*loc, i), lines, twice, name, (*above, node))


# ---- errors ------------------------------------------------------------------------------------------------------


def _fault(problem: Any, source: Source) -> Fault:
    """Return pydantic's error as a fault. An unknown key counts as the known key that it
    resembles.
    """
    loc: Loc = tuple(problem["loc"])
    shown, kind = loc, problem["type"]
    if kind == "extra_forbidden":
        key = _resembled(loc)
        alike = difflib.SequenceMatcher(None, str(loc[-1])[:_SHOWN], key).ratio() >= _ALIKE
        return Fault(loc, _words(problem), ((*loc[:-1], key),) if alike else ())
    # pydantic adds to the key which kind of a union it was, or that it was a key of a mapping
    while kind != "missing" and source.lines and len(shown) > 1 and shown not in source.lines:
        if source.is_option(shown):
            break
        shown = shown[:-1]
    return Fault(shown, _words(problem), (loc,))


def _resembled(loc: Loc) -> str:
    return nearest(str(loc[-1]), keys_of(_model(list(loc[:-1]))).values())


def _words(problem: Any) -> str:
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, ValueError):
        return " ".join(str(cause).split())
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        *parents, key = problem["loc"]
        if _model(parents) is TopicRule and key in KAFKA_TOPIC_KEYS | OLDER_TOPIC_KEYS:
            return "has no effect: this key of Kafka does not concern what a batch may hold"
        return f"unknown key (nearest known key: {_resembled(tuple(problem['loc']))})"
    if kind == "missing":
        return "is missing"
    if kind == "literal_error":
        return f"must be {context['expected'].replace(chr(39), '')}"
    if kind in ("string_type", "int_type", "bool_type", "list_type", "dict_type", "model_type"):
        return f"must be {_KINDS[kind]}"
    if kind == "string_pattern_mismatch":
        return f"must look like {context['pattern']}"
    if kind in _BOUNDS:  # of a number, which is not a secret
        word, bound = _BOUNDS[kind]
        return f"must be {word} {context[bound]}, not {problem['input']}"
    text: str = problem["msg"]
    return text[:1].lower() + text[1:]


def _model(parents: list[str | int]) -> type[BaseModel]:
    """Return the model whose keys stand in the mapping at this place."""
    model: type[BaseModel] = Settings
    for part in parents:
        if isinstance(part, str):
            field = model.model_fields.get(_name(model, part))
            model = (_model_in(field.annotation) if field is not None else None) or model
    return model


def _name(model: type[BaseModel], part: str | int) -> str:
    """Return the field's name by the key in the file."""
    return next((name for name, key in keys_of(model).items() if part in (name, key)), "")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model in an annotation such as ``list[Listener]`` or ``Tls | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def keys_of(model: type[BaseModel]) -> dict[str, str]:
    """Return name of the field -> key in the file."""
    return {name: field.alias or name for name, field in model.model_fields.items()}


_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "keys and values",
    "model_type": "keys and values",
}
#: type of an error -> words, key of the bound in its context
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


# ---- back to YAML ------------------------------------------------------------------------------------------------


def shown(settings: Settings) -> str:
    """All settings as YAML, those that no file gave too; secrets that stand in the file are hidden."""
    text: str = yaml.safe_dump(_plain(settings), sort_keys=False, default_flow_style=False, allow_unicode=True)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {key: _plain(getattr(value, name)) for name, key in keys_of(type(value)).items()}
    if isinstance(value, Secret):
        return value.shown()
    if isinstance(value, Address | ClaimsPolicy | Path):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        one_broker = len(value) == 1 and isinstance(value[0], Address)
        return str(value[0]) if one_broker else [_plain(one) for one in value]
    return value
