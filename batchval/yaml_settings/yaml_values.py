"""YAML as plain values, with the line of each key; and the error that lists all faults of a
file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from batchval.errors import BatchvalError
from batchval.named_files import read_start
from batchval.yaml_settings.faults import Fault, Loc, path_of

__all__ = ["MAX_FILE_BYTES", "ConfigError", "parsed", "read_bytes", "text_of"]

#: Bytes that a file of settings may have.
MAX_FILE_BYTES: Final = 1 << 20


class ConfigError(BatchvalError):
    """An error with all faults of the settings, a line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(
            problems[0] if len(problems) == 1 else f"{problems[0]} (and {len(problems) - 1} more)"
        )
        self.problems = problems


def read_bytes(path: Path) -> bytes:
    """Return a file's content, and at most a byte more than ``text_of`` takes. OSError."""
    return read_start(path, MAX_FILE_BYTES + 1)


def text_of(data: bytes, name: str) -> str:
    """Return what was read of a file as text. ConfigError where it is too long, or not UTF-8."""
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError([f"{name}: longer than {MAX_FILE_BYTES} bytes"])
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02x} at position {error.start} is not UTF-8"
        raise ConfigError([f"{name}: is not YAML: {found}"]) from None


def parsed(text: str, name: str) -> tuple[dict[str, Any], dict[Loc, int], list[Fault]]:
    """Return the values, the line (from 1) of each key, and the keys that stand twice."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        where = (
            f"{name}: is not YAML: character U+{error.character:04X} at position {error.position}"
        )
        raise ConfigError([f"{where} is not allowed"]) from None
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
        raise ConfigError(
            [f"{name}{at}: is not YAML: {error.problem or error.context or 'cannot be read'}"]
        ) from None
    except RecursionError:
        raise ConfigError([f"{name}: is not YAML: nested too deep to be read"]) from None
    except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError):
        # PyYAML's constructors raise these for values that their tags do not fit
        raise ConfigError([f"{name}: is not YAML: a value does not fit its tag"]) from None
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
    if len(lines) > MAX_FILE_BYTES // 16:
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
