"""The state of each address of the cluster: whether it serves, and why it does not.

UNTRIED      nobody has connected to it yet
SERVING      it was reached
UNREACHABLE  no connection; the next connection that succeeds makes it SERVING
STALLED      it accepts connections and does not answer; the next answer makes it SERVING
WRONG        it is not a broker of this cluster; nothing is sent to it until it answers as one
"""

from __future__ import annotations

import enum
import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from batchval.proxy.cluster.metadata_client import BrokerAddress

__all__ = ["Endpoint", "EndpointState", "address_text", "listed", "problem_of"]

MAX_LISTED: Final = 20


class EndpointState(enum.Enum):
    """The states of an address."""

    UNTRIED = "untried"
    SERVING = "serving"
    UNREACHABLE = "unreachable"
    STALLED = "stalled"
    WRONG = "wrong"


_PROBLEMS: Final = (EndpointState.UNREACHABLE, EndpointState.STALLED, EndpointState.WRONG)


@dataclass(slots=True, eq=False)
class Endpoint:
    """One address. ``problem`` says why it does not serve: "Connection refused", "speaks HTTP".

    ``is_logged``  whether the log has the problem, so that it gets the end of it, too
    """

    address: BrokerAddress
    state: EndpointState = EndpointState.UNTRIED
    problem: str = ""
    is_logged: bool = False

    @property
    def failed(self) -> bool:
        """Return whether the address did not serve at its last attempt."""
        return self.state in _PROBLEMS

    @property
    def predicate(self) -> str:
        """Return the problem as the predicate of a sentence whose subject is the address."""
        return (
            self.problem
            if self.state is EndpointState.WRONG
            else f"cannot be reached: {self.problem}"
        )

    def connected(self) -> None:
        """Note a connection. It disproves that the address is unreachable, and nothing else."""
        if self.state in (EndpointState.UNTRIED, EndpointState.UNREACHABLE):
            self.answered()

    def answered(self) -> None:
        """Note an answer."""
        self.state = EndpointState.SERVING
        self.problem = ""

    def fail(self, state: EndpointState, problem: str) -> None:
        """Note why it does not serve."""
        self.state = state
        self.problem = problem


def address_text(address: BrokerAddress) -> str:
    """Return HOST:PORT, with an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listed(endpoints: Iterable[Endpoint]) -> str:
    """Return all addresses and their problems, for one sentence."""
    found = [f"{address_text(one.address)} ({one.problem or 'not tried yet'})" for one in endpoints]
    more = len(found) - MAX_LISTED
    return ", ".join(found[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def problem_of(error: BaseException) -> str:
    """Return why an address could not be reached or did not answer, in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = str(error)
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        text = os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return text or type(error).__name__
