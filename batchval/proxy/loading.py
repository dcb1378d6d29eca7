"""Settings from a file of YAML, from the command line, and back to YAML with secrets hidden.

Each error is one line: where it stands (file, line, key), and what is wrong. None shows a value that may be secret.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from batchval.errors import BatchvalError
from batchval.policy import ClaimsPolicy, nearest
from batchval.proxy.config import Settings
from batchval.proxy.secret import Secret
from batchval.proxy.values import Address

__all__ = ["ConfigError", "load", "overridden", "settings_from", "shown"]

Loc = tuple[str | int, ...]

_MAX_FILE_BYTES = 1 << 20
_MOST_PROBLEMS = 20


class ConfigError(BatchvalError):
    """What is wrong with settings, a line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems[0] if len(problems) == 1 else f"{problems[0]} (and {len(problems) - 1} more)")
        self.problems = problems


def load(path: Path, overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings of a file. ``overrides``: values of the command line, which win. OSError, ConfigError."""
    with open(path, "rb") as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError([f"{path}: longer than {_MAX_FILE_BYTES} bytes"])
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigError([f"{path}: is not UTF-8"]) from None
    values, lines = _parse(text, str(path))
    return settings_from(overridden(values, overrides or {}), name=str(path), folder=path.parent, lines=lines)


def settings_from(
    values: Mapping[str, Any], *, name: str = "", folder: Path | None = None, lines: Mapping[Loc, int] | None = None
) -> Settings:
    """Settings from what a file of YAML would hold; relative paths start at ``folder``. ConfigError."""
    try:
        return Settings.model_validate(values, context={"folder": folder or Path(os.curdir)})
    except ValidationError as error:
        raise ConfigError(list(_problems(error, name, lines or {}))) from None


def overridden(values: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """``{"log.format": "json"}`` set into the values; a part that is no mapping is left for the error it will be."""
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


# ---- YAML --------------------------------------------------------------------------------------------------------


def _parse(text: str, name: str) -> tuple[dict[str, Any], dict[Loc, int]]:
    """The values, and the line (from 1) of each key."""
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        lines: dict[Loc, int] = {}
        if root is not None:
            _walk(root, (), lines, name, ())
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
    return values, lines


def _walk(node: yaml.Node, loc: Loc, lines: dict[Loc, int], name: str, above: tuple[yaml.Node, ...]) -> None:
    """Notes the lines of all keys; refuses a key that stands twice, which YAML itself would pass over."""
    if node in above:
        raise ConfigError([f"{name}:{node.start_mark.line + 1}: {_path(loc)}: holds itself"])
    if len(lines) > _MAX_FILE_BYTES // 16:
        raise ConfigError([f"{name}: has too many keys"])
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            word = key.value if isinstance(key, yaml.ScalarNode) else "?"
            line = key.start_mark.line + 1
            if word in seen:
                raise ConfigError([f"{name}:{line}: {_path((*loc, word))}: stands twice"])
            seen.add(word)
            lines[*loc, word] = line
            _walk(value, (*loc, word), lines, name, (*above, node))
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            lines[*loc, i] = value.start_mark.line + 1
            _walk(value, (*loc, i), lines, name, (*above, node))


# ---- errors ------------------------------------------------------------------------------------------------------


def _path(loc: Loc) -> str:
    """``listeners[0].tls.key``"""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return " ".join(text.split())


def _problems(error: ValidationError, name: str, lines: Mapping[Loc, int]) -> Iterator[str]:
    found = error.errors(include_url=False, include_input=False)
    for n, problem in enumerate(found):
        if n == _MOST_PROBLEMS:
            yield f"{name}: and {len(found) - n} more" if name else f"and {len(found) - n} more"
            return
        # pydantic puts its own words behind the key: which kind of a union it was, that it was a key of a mapping
        loc = tuple(problem["loc"])
        known = loc
        while known and known not in lines and problem["type"] != "missing":
            known = known[:-1]
        shown = loc if problem["type"] in ("missing", "extra_forbidden") or not lines else known or loc
        line = next((lines[loc[:i]] for i in range(len(loc), 0, -1) if loc[:i] in lines), None)
        place = f"{name}:{line}" if name and line else name
        yield ": ".join(part for part in (place, _path(shown), _words(problem)) if part)


def _words(problem: Any) -> str:
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, ValueError):
        return " ".join(str(cause).split())
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        *parents, key = problem["loc"]
        known = nearest(str(key), _keys(_model(parents)).values())
        return f"unknown key (nearest known key: {known})"
    if kind == "missing":
        return "is missing"
    if kind == "literal_error":
        return f"must be {context['expected'].replace(chr(39), '')}"
    if kind in ("string_type", "int_type", "bool_type", "list_type", "dict_type", "model_type"):
        return f"must be {_KINDS[kind]}"
    if kind == "string_pattern_mismatch":
        return f"must look like {context['pattern']}"
    said: str = problem["msg"]
    return said[:1].lower() + said[1:]


def _model(parents: list[str | int]) -> type[BaseModel]:
    """Return the model whose keys stand in the mapping at this place."""
    model: type[BaseModel] = Settings
    for part in parents:
        if isinstance(part, str):
            name = next(name for name, key in _keys(model).items() if part in (name, key))
            model = _model_in(model.model_fields[name].annotation) or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model in an annotation such as ``list[Listener]`` or ``Tls | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def _keys(model: type[BaseModel]) -> dict[str, str]:
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


# ---- back to YAML ------------------------------------------------------------------------------------------------


def shown(settings: Settings) -> str:
    """All settings as YAML, those that no file gave too; secrets that stand in the file are hidden."""
    text: str = yaml.safe_dump(_plain(settings), sort_keys=False, default_flow_style=False, allow_unicode=True)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {key: _plain(getattr(value, name)) for name, key in _keys(type(value)).items()}
    if isinstance(value, Secret):
        return value.shown()
    if isinstance(value, Address | ClaimsPolicy | Path):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
