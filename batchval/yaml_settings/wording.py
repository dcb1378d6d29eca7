"""Messages for pydantic's findings in a file of settings. They show no value that may be secret."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict

from batchval.policy import nearest
from batchval.yaml_settings.faults import Fault, Loc, Source

__all__ = ["STRICT", "fault_of", "field_name", "keys_of", "model_at"]

#: Of all models of settings: strict, without unknown keys, and none of their errors shows a value.
STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)

#: A key that is this similar to a known one was meant to be that one.
_ALIKE = 0.8
_SHOWN = 80


def fault_of(
    problem: Any,
    source: Source,
    root: type[BaseModel],
    without_effect: Callable[[type[BaseModel], str], str] = lambda model, key: "",
) -> Fault:
    """Return pydantic's error as a fault. An unknown key counts as the known key that it
    resembles.

    ``root``            the model of the whole file
    ``without_effect``  says of an unknown key of a model why it has no effect, or nothing
    """
    words = _words(problem, root, without_effect)
    loc: Loc = tuple(problem["loc"])
    shown, kind = loc, problem["type"]
    if kind == "extra_forbidden":
        key = _resembled(loc, root)
        alike = difflib.SequenceMatcher(None, str(loc[-1])[:_SHOWN], key).ratio() >= _ALIKE
        return Fault(loc, words, ((*loc[:-1], key),) if alike else ())
    # pydantic adds to the key which kind of a union it was, or that it was a key of a mapping
    while kind != "missing" and source.lines and len(shown) > 1 and shown not in source.lines:
        if source.is_option(shown):
            break
        shown = shown[:-1]
    return Fault(shown, words, (loc,))


def _resembled(loc: Loc, root: type[BaseModel]) -> str:
    return nearest(str(loc[-1]), keys_of(model_at(root, list(loc[:-1]))).values())


def _words(
    problem: Any, root: type[BaseModel], without_effect: Callable[[type[BaseModel], str], str]
) -> str:
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, ValueError):
        return " ".join(str(cause).split())
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        *parents, key = problem["loc"]
        unknown = f"unknown key (nearest known key: {_resembled(tuple(problem['loc']), root)})"
        return without_effect(model_at(root, parents), key) or unknown
    if kind == "missing":
        return "is missing"
    if kind == "literal_error":
        return f"must be {context['expected'].replace(chr(39), '')}"
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}"
    if kind == "string_pattern_mismatch":
        return f"must look like {context['pattern']}"
    if kind in _BOUNDS:  # of a number, which is not a secret
        word, bound = _BOUNDS[kind]
        limit = context[bound]
        limit = int(limit) if limit == int(limit) else limit
        return f"must be {word} {limit}, not {problem['input']}"
    text: str = problem["msg"]
    return text[:1].lower() + text[1:]


def model_at(root: type[BaseModel], parents: list[str | int]) -> type[BaseModel]:
    """Return the model whose keys stand in the mapping at this place."""
    model = root
    for part in parents:
        if isinstance(part, str):
            field = model.model_fields.get(field_name(model, part))
            model = (_model_in(field.annotation) if field is not None else None) or model
    return model


def field_name(model: type[BaseModel], part: str | int) -> str:
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
    "float_type": "a number",
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
