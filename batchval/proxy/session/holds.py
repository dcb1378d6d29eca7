"""Name the reasons for which a client is not read, a bit each; some hold the broker, too."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ANSWERS",
    "BROKER",
    "BUDGET",
    "CONVERTING",
    "ENDING",
    "IN_WORDS",
    "SASL",
    "TURN",
    "UNKNOWN",
    "VALIDATING",
]

BROKER: Final = 1  # the broker does not take what is there
VALIDATING: Final = 2  # enough waits for its verdict, or for its place
ANSWERS: Final = 4  # the client does not take its answers; the broker is not read either
BUDGET: Final = 8  # all sessions together hold too much; the broker is not read either
ENDING: Final = 16
TURN: Final = 32  # requests that have been read wait for their turn on the loop
SASL: Final = 64  # the broker's answer decides how the next bytes are read
UNKNOWN: Final = 128  # nobody knows yet whether brokers authenticate, and the request is large
CONVERTING: Final = 256  # the broker alone is not read: an answer of it is converted

#: The reasons for a client, for the log.
IN_WORDS: Final = {
    BROKER: "the broker takes no requests",
    VALIDATING: "requests wait for their verdict",
    ANSWERS: "the client takes no answers",
    BUDGET: "limits.max_bytes_held",
    ENDING: "the connection ends",
    TURN: "other clients have their turn",
    SASL: "the broker's answer to SaslHandshake is awaited",
    UNKNOWN: "no broker has shown whether clients have to authenticate",
}
