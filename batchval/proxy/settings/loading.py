"""Settings from a YAML file and from the command line, and back to YAML with secrets hidden.

All faults are found in one run: each wrong value is left out of a copy, and what holds between the
other settings is checked on that copy. Each fault is one line: file, line, key, and what is wrong.
None shows a value that may be secret.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from batchval.policy import KAFKA_TOPIC_KEYS, OLDER_TOPIC_KEYS, ClaimsPolicy
from batchval.proxy.settings.config import Settings, TopicRule
from batchval.proxy.settings.setting_checks import faults_of
from batchval.proxy.settings.setting_types import STAND_IN, STAND_IN_WORD, Address, Secret
from batchval.yaml_settings.faults import Fault, Loc, Source, lines_of
from batchval.yaml_settings.wording import fault_of, field_name, keys_of, model_at
from batchval.yaml_settings.yaml_values import (
    MAX_FILE_BYTES,
    ConfigError,
    parsed,
    read_bytes,
    text_of,
)

__all__ = [
    "MAX_FILE_BYTES",
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


class Draft:
    """Settings and all faults that were found in them.

    ``settings``  without the wrong values: only for further checks; None where nothing is left
    ``faults``    values that are wrong, then settings that do not go together or with their files
    ``warnings``  settings that have no effect as the others are: a gate runs with them
    ``digest``    of the file's content (SHA-256)
    ``file_mode`` what the file has as ``mode``, where an option may have set another
    """

    def __init__(self, settings: Settings | None, source: Source, faults: Iterable[Fault]) -> None:
        self.settings = settings
        self.source = source
        self.faults = list(faults)
        self.warnings: list[Fault] = []
        self.digest = ""
        self.file_mode: object = None
        self._wrong_values = len(self.faults)
        self._wrong = {loc for fault in self.faults for loc in (fault.loc, *fault.reads)}

    def add(self, faults: Iterable[Fault]) -> None:
        """Add faults and warnings, without those that compare a value which is wrong itself."""
        for fault in faults:
            if not any(self.is_wrong(loc) for loc in fault.reads):
                (self.warnings if fault.is_warning else self.faults).append(fault)

    def is_wrong(self, loc: Loc) -> bool:
        """Return whether the value of this key, or of one around it, is wrong by itself."""
        return any(loc[:i] in self._wrong for i in range(1, len(loc) + 1))

    def readable(self) -> tuple[Settings, list[str]]:
        """Return settings with valid values, and the lines of other faults and of warnings. Raises
        ConfigError.
        """
        values, others = self.faults[: self._wrong_values], self.faults[self._wrong_values :]
        if values or self.settings is None:
            raise ConfigError(lines_of(self.faults, self.source))
        return self.settings, lines_of([*others, *self.warnings], self.source)

    def warning_lines(self) -> list[str]:
        """Return a line for each warning."""
        return lines_of(self.warnings, self.source)

    def finished(self) -> Settings:
        """Return the settings. Raises ConfigError with all faults, where there are any."""
        if self.faults or self.settings is None:
            raise ConfigError(lines_of(self.faults, self.source))
        return self.settings


def load(path: Path, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of a file; ``overrides`` win. Raises OSError and ConfigError."""
    return drafted_file(path, overrides).finished()


def drafted_file(path: Path, overrides: Mapping[str, Any] | None = None) -> Draft:
    """Return the draft of a file. Raises OSError, and ConfigError where it is not YAML."""
    return drafted_bytes(read_bytes(path), path, overrides)


def drafted_bytes(data: bytes, path: Path, overrides: Mapping[str, Any] | None = None) -> Draft:
    """Return the draft of a file's bytes. Raises ConfigError for other than YAML, or too many."""
    values, lines, twice = parsed(text_of(data, str(path)), str(path))
    overrides = overrides or {}
    source = Source(str(path), lines, frozenset(tuple(key.split(".")) for key in overrides))
    file_mode = values.get("mode")
    draft = drafted(overridden(values, overrides), source=source, folder=path.parent, faults=twice)
    draft.digest = hashlib.sha256(data).hexdigest()
    draft.file_mode = file_mode
    return draft


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Return settings from what a YAML file would hold. Raises ConfigError."""
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
            {**problem, "loc": _place_in(values, problem["loc"])}
            for problem in error.errors(include_url=False)
        ]
        wrong = [
            fault_of(problem, source or Source(), Settings, _without_effect) for problem in problems
        ]
        copy = _copied(values)
        for problem in problems:
            _repair(copy, tuple(problem["loc"]), problem["type"])
        with contextlib.suppress(ValidationError):  # these faults would come from the repair
            settings = Settings.model_validate(copy, context=context)
    draft = Draft(settings, source or Source(), [*faults, *wrong])
    if settings is not None:
        draft.add(faults_of(settings))
    return draft


def _without_effect(model: type[BaseModel], key: str) -> str:
    if model is TopicRule and key in KAFKA_TOPIC_KEYS | OLDER_TOPIC_KEYS:
        return "has no effect: this key of Kafka does not concern what a batch may hold"
    return ""


def overridden(values: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Set ``{"log.format": "json"}`` into the values, but not into what is not a mapping."""
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
    """Return a fault's place in the values, where a mapping may stand for a list of it."""
    found: list[str | int] = []
    place: Any = values
    for part in loc:
        if isinstance(part, int) and isinstance(place, dict):
            continue
        found.append(part)
        place = place[part] if _has(place, part) else None
    return tuple(found)


def _copied(value: Any) -> Any:
    """Copy mappings and lists; what YAML shares (``*anchor``) gets a copy for each place."""
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
    model = model_at(Settings, parents)
    if isinstance(last, int):
        name = next((part for part in reversed(parents) if isinstance(part, str)), "")
        around = model_at(Settings, [part for part in parents if part != name])
        field = around.model_fields.get(field_name(around, name))
        args = get_args(field.annotation) if field is not None else ()
        return (args[0] if args else None), True
    field = model.model_fields.get(field_name(model, last))
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
                key: _stand_in(field.annotation)
                for key, field in zip(keys, fields, strict=True)
                if field.is_required()
            }
        if issubclass(annotation, Address):
            return STAND_IN
        if issubclass(annotation, Path):
            return Path(os.curdir)
    if get_origin(annotation) in (list, tuple):
        return [_stand_in(get_args(annotation)[0])]
    return STAND_IN_WORD


# ---- back to YAML --------------------------------------------------------------------------------


def shown(settings: Settings) -> str:
    """Return all settings as YAML with their defaults. Secrets in the file are hidden."""
    text: str = yaml.safe_dump(
        _plain(settings), sort_keys=False, default_flow_style=False, allow_unicode=True
    )
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
