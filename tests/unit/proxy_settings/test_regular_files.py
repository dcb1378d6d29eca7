"""Files that settings name: only regular ones are read, so that nothing waits and nothing leaks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchval import named_files
from batchval.proxy.life.file_checks import file_faults
from batchval.proxy.life.settings_file import SettingsFile, digests_of
from batchval.proxy.settings.loading import ConfigError, settings_from
from batchval.proxy.settings.setting_types import MAX_SECRET_BYTES, Secret

IRREGULAR: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("kind", IRREGULAR)
def test_an_irregular_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    IRREGULAR[kind](path)
    before = descriptors()
    with pytest.raises(OSError, match="is not a regular file"):
        named_files.read(path, 10)
    with pytest.raises(ValueError, match=f"{path}: is not a regular file"):
        Secret(file=path).reveal()
    with pytest.raises(ConfigError, match=f"{path}: is not a regular file"):
        SettingsFile(path, {}, "").read()
    assert descriptors() == before


def test_a_file_that_becomes_irregular_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "regular").touch()
    regular = os.stat(tmp_path / "regular")
    for n, make in enumerate(IRREGULAR.values()):
        make(tmp_path / str(n))
        before = descriptors()
        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", lambda _: regular)
            with pytest.raises(OSError, match="is not a regular file"):
                named_files.opened(tmp_path / str(n))
        assert descriptors() == before


def test_a_secret_has_so_many_bytes(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("x" * MAX_SECRET_BYTES)
    assert len(Secret(file=tmp_path / "word").reveal()) == MAX_SECRET_BYTES
    (tmp_path / "word").write_text("x" * MAX_SECRET_BYTES + "\n")
    with pytest.raises(ValueError, match=f"is longer than {MAX_SECRET_BYTES} bytes"):
        Secret(file=tmp_path / "word").reveal()


def test_every_file_that_settings_name_is_checked_and_compared(tmp_path: Path) -> None:
    # Each is a pipe without a writer: to open one as usual would wait for ever.
    names = iter(range(100))

    def pipe() -> str:
        os.mkfifo(path := tmp_path / str(next(names)))
        return str(path)

    def tls(*keys: str) -> dict[str, Any]:
        return {key: pipe() for key in keys} | {"key_password": {"file": pipe()}}

    listener = tls("certificate", "key", "client_ca", "client_crl")
    settings = settings_from(
        {
            "listeners": [{"address": "127.0.0.1:0", "tls": listener}],
            "upstream": {
                "bootstrap": "127.0.0.1:1",
                "tls": tls("ca", "certificate", "key"),
                "admin": {"username": "gate", "password": {"file": pipe()}},
            },
            "metrics": {
                "otlp": {
                    "endpoint": "https://127.0.0.1:1",
                    "ca": pipe(),
                    "headers": {"authorization": {"file": pipe()}},
                }
            },
            "topics": {
                "policies": [{"match": "*", "record_rules": {"schema_id": [{"registry": "main"}]}}]
            },
            "schema_registries": [
                {
                    "name": "main",
                    "url": "https://127.0.0.1:1",
                    "ca": pipe(),
                    "username": "gate",
                    "password": {"file": pipe()},
                }
            ],
        }
    )
    pipes = {str(path) for path in tmp_path.iterdir()}
    faults = [fault.text for fault in file_faults(settings, None)]
    assert {text.partition(":")[0] for text in faults if "is not a regular file" in text} == pipes
    assert {str(path) for path in digests_of(settings)} == pipes
