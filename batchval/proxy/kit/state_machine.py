"""An object whose state a table changes: a session, a worker, a hand-over, the life of a gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

__all__ = ["StateMachine"]

S = TypeVar("S")
E = TypeVar("E")


class StateMachine(Generic[S, E]):
    """An object with one state at a time.

    ``transitions``  (state, event) -> the next state; a pair that is missing changes nothing
    """

    transitions: Mapping[tuple[S, E], S]
    state: S

    def move(self, event: E) -> bool:
        """Change the state; return whether it has changed."""
        state = self.transitions.get((self.state, event))
        if state is None:
            return False
        self.state = state
        return True
