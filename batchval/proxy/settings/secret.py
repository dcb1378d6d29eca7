"""Secrets, such as passwords, and their sources.

In a file of settings:  password: {file: /run/secrets/kafka}   or {env: KAFKA_PASSWORD}   or the word itself
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from batchval.named_files import read

__all__ = ["HIDDEN", "Secret"]

#: what stands where a secret would be shown
HIDDEN = "(hidden)"

#: Bytes of a secret's file.
MOST_BYTES: Final = 64 << 10


class Secret:
    """A secret by its source. ``reveal`` reads it anew each time, so that a file may be replaced.

    Two secrets are equal where their sources are.
    """

    __slots__ = ("_word", "env", "file")

    def __init__(
        self, word: str | None = None, *, file: Path | None = None, env: str | None = None
    ) -> None:
        self._word = word
        self.file = file
        self.env = env

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return (self._word, self.file, self.env) == (other._word, other.file, other.env)

    def __hash__(self) -> int:
        return hash((self._word, self.file, self.env))

    @classmethod
    def parse(cls, value: Any, folder: Path) -> Secret:
        """Return a secret from a settings file; relative paths start at ``folder``. Raises
        ValueError, which shows no secret.
        """
        if isinstance(value, Secret):
            return value
        if isinstance(value, str):
            if not value:
                raise ValueError("is empty")
            return cls(value)
        if isinstance(value, dict) and len(value) == 1:
            ((kind, where),) = value.items()
            if isinstance(where, str) and where:
                if kind == "file":
                    return cls(file=folder / where)
                if kind == "env":
                    return cls(env=where)
        raise ValueError("must be text, {file: PATH} or {env: NAME}")

    def reveal(self) -> str:
        """Return the secret. One trailing newline of a file is stripped. Raises ValueError, which
        names the source alone.
        """
        if self.file is not None:
            try:
                data = read(self.file, MOST_BYTES + 1)
                word = data.decode()
            except OSError as error:
                raise ValueError(f"{self.file}: {error.strerror}") from None
            except UnicodeDecodeError:
                raise ValueError(f"{self.file}: is not UTF-8") from None
            if len(data) > MOST_BYTES:
                raise ValueError(f"{self.file}: is longer than {MOST_BYTES} bytes")
            word = word.removesuffix("\n").removesuffix("\r")
            if not word:
                raise ValueError(f"{self.file}: is empty")
            return word
        if self.env is not None:
            word = os.environ.get(self.env, "")
            if not word:
                raise ValueError(f"the environment has no {self.env}, or it is empty")
            return word
        assert self._word is not None
        return self._word

    def shown(self) -> object:
        """Return what may be printed."""
        if self.file is not None:
            return {"file": str(self.file)}
        return {"env": self.env} if self.env is not None else HIDDEN

    def __repr__(self) -> str:
        return f"Secret({self.shown()!r})"
