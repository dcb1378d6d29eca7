"""Settings of gates that pages and deployment files show, and the same made to run in a test.

docs/**/*.md, README.md, deploy/**/*.md    fenced blocks of YAML, and shell's here-documents
deploy/**/*.yaml                           files, and ``settings`` of the chart's values
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from batchval.proxy.settings.config import Settings

ROOT = Path(__file__).parents[2]
KEYS = set(Settings.model_fields)
_FENCE = re.compile(r"^( *)```ya?ml[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_HERE = re.compile(r"<<-?'?(\w+)'?\n(.*?)^\s*\1$", re.DOTALL | re.MULTILINE)


def _texts() -> Iterator[tuple[str, str]]:
    """Yield (name, text) of what may be YAML."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    for page in sorted(pages):
        text = page.read_text("utf-8")
        blocks = [*_FENCE.findall(text), *_HERE.findall(text)]
        for n, (_, block) in enumerate(blocks):
            yield f"{page.relative_to(ROOT)}-{n}", textwrap.dedent(block)
    for file in sorted((ROOT / "deploy").rglob("*.y*ml")):
        yield str(file.relative_to(ROOT)), file.read_text("utf-8")


def documented() -> dict[str, dict[str, Any]]:
    """Return each documented settings file, and each part of one, by its place."""
    found = {}
    for name, text in _texts():
        try:
            documents = list(yaml.safe_load_all(text))
        except yaml.YAMLError:
            continue  # a template
        for document in documents:
            values = document.get("settings", document) if isinstance(document, dict) else None
            if isinstance(values, dict) and values and values.keys() <= KEYS:
                found[name] = values
    return found


def runnable(values: dict[str, Any], folder: Path, bootstrap: str) -> dict[str, Any]:
    """Return settings that run on this machine: with other addresses and folders, and without
    certificates and passwords.
    """
    values = {
        key: value for key, value in values.items() if key not in ("metrics", "workers", "control")
    }
    listeners = values.get("listeners", [{}])
    values["listeners"] = [
        {key: one[key] for key in ("name", "trusted") if key in one} | {"address": "127.0.0.1:0"}
        for one in listeners
    ]
    values["upstream"] = {"bootstrap": bootstrap}
    values["metrics"] = {"address": None}
    if "state_directory" in values:
        values["state_directory"] = _made(folder / "state")
    if isinstance(quarantine := values.get("quarantine"), dict):
        values["quarantine"] = quarantine | {"directory": _made(folder / "quarantine")}
    elif quarantine is not None:
        values["quarantine"] = _made(folder / "quarantine")
    if "audit_file" in values.get("log", {}):
        values["log"] = values["log"] | {"audit_file": str(folder / "audit.jsonl")}
    values["schema_registries"] = [
        {
            key: value
            for key, value in one.items()
            if key not in ("username", "password", "ca", "url")
        }
        | {"url": "http://127.0.0.1:1"}
        for one in values.get("schema_registries", [])
    ]
    if "topics" in values:
        policies = [
            one | ({"custom_rules": ["builtins:len"]} if "custom_rules" in one else {})
            for one in values["topics"].get("policies", [])
        ]
        values["topics"] = {"policies": policies}
    return values


def _made(folder: Path) -> str:
    folder.mkdir(mode=0o700, exist_ok=True)
    return str(folder)
