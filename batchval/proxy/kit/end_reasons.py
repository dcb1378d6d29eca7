"""The reasons for which the gate ends connections, each with its level in the log, its meaning, and
what to do.

    word   label of connections_closed_total and connections_refused_by_total, reason= in the log

docs/reference/proxy/connections.md has the same table; a test compares them, and looks for reasons
of the code that are missing here.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

__all__ = ["CLIENT", "REASONS", "EndReason", "explained", "reason_of"]

#: The client has closed the connection itself: such an end is not counted, and logged with level
#: debug alone.
CLIENT: Final = "client"


class EndReason(NamedTuple):
    """A reason for the end of a connection. ``level`` is logging's: INFO where nothing is wrong."""

    level: int
    meaning: str
    advice: str


def _fine(meaning: str, advice: str = "Nothing.") -> EndReason:
    return EndReason(logging.INFO, meaning, advice)


def _wrong(meaning: str, advice: str) -> EndReason:
    return EndReason(logging.WARNING, meaning, advice)


_DAMAGED: Final = "Look for a client of an unknown protocol, or for bytes changed on the network."
_BUG: Final = "Report it with this line: it is an error of batchval."
_SLOW: Final = "Look at the client and its network, or raise limits.{}."

REASONS: Final[dict[str, EndReason]] = {
    # ---- ends without a fault ----
    CLIENT: EndReason(logging.DEBUG, "The client closed the connection.", "Nothing."),
    "idle": _fine(
        "The client sent no request for limits.idle_timeout_ms.",
        "Nothing: clients connect again.",
    ),
    "drain": _fine("The gate is shutting down.", "Nothing: clients connect again."),
    "max_age": _fine(
        "The connection reached limits.max_connection_age_ms.",
        "Nothing: clients connect again.",
    ),
    "upstream_closed": _fine(
        "The broker closed the connection while no request awaited its answer.",
        "Nothing, if brokers restart or close idle connections; with acks=0 see the broker's log.",
    ),
    "client_gone": _fine(
        "The client left while it was not read, or was silent for limits.peer_timeout_ms.",
        "Look at the client's network, if it happens often.",
    ),
    # ---- not admitted ----
    "max_connections": _wrong(
        "The gate has as many connections as limits.max_connections or its open files allow.",
        "Find out who connects (batchval proxy --clients); raise the limit, or add a gate.",
    ),
    "max_listener_connections": _wrong(
        "The listener has as many connections as its max_connections allows.",
        "Find out who connects (batchval proxy --clients); raise listeners[].max_connections.",
    ),
    "max_connections_per_address": _wrong(
        "The address has as many connections as limits.max_connections_per_address allows.",
        "Look for a client that leaves connections open; raise the limit for shared addresses.",
    ),
    # ---- TLS ----
    "handshake_plaintext": _wrong(
        "The client does not speak TLS, and the listener does.",
        "Set security.protocol of the client to SSL or SASL_SSL.",
    ),
    "handshake_malformed": _wrong(
        "The client began with bytes that are not a TLS ClientHello.",
        _DAMAGED,
    ),
    "handshake_timeout": _wrong(
        "The client did not finish the TLS handshake in limits.handshake_timeout_ms.",
        "Look at the client and its network; port scans and probes do this, too.",
    ),
    "handshake_client": EndReason(
        logging.DEBUG,
        "The client closed the connection during the TLS handshake.",
        "Nothing for a probe; else see the client's log: it may not trust the certificate.",
    ),
    "handshake_certificate": _wrong(
        "The client showed no certificate, or one that the listener does not accept.",
        "See detail; check the client's keystore, tls.client_ca and tls.client_crl.",
    ),
    "handshake_protocol": _wrong(
        "The TLS handshake failed.",
        "See detail, the TLS library's reason: versions, ciphers, or the trust of the client.",
    ),
    "handshake_crowded": _wrong(
        "The gate needed this place for another TLS handshake; the oldest one ends.",
        "Look for clients that begin handshakes and do not finish them.",
    ),
    "handshake_sni_missing": _wrong(
        "The client sent no server name, and the listener's sni needs one.",
        "Connect by the bootstrap name of the listener's sni, not by an IP address.",
    ),
    "handshake_sni_unknown": _wrong(
        "The client asked for a server name that the listener's sni does not have.",
        "See detail; compare bootstrap.servers of the client with the listener's sni.",
    ),
    "handshake_ended": _fine("The gate ended the connection during the TLS handshake."),
    # ---- what is not Kafka's protocol ----
    "frame_http": _wrong(
        "The client spoke HTTP.",
        "Find the client: /metrics and probes belong to metrics.address.",
    ),
    "frame_tls": _wrong(
        "The client spoke TLS, and the listener does not.",
        "Set the client's security.protocol to (SASL_)PLAINTEXT, or set listeners[].tls.",
    ),
    "frame_size": _wrong(
        "A request stated a negative length, or one above limits.max_frame_bytes.",
        "Raise the limit, or lower the client's max.request.size; else find an unknown client.",
    ),
    "frame_unauthenticated": _wrong(
        "An unauthenticated request exceeded limits.max_unauthenticated_frame_bytes.",
        "Set the client's SASL properties: brokers of this cluster ask for authentication.",
    ),
    "request_header": _wrong("A request is too short for its header.", _DAMAGED),
    "request_malformed": _wrong("A request's fields do not fit its length.", _DAMAGED),
    "produce_malformed": _wrong(
        "A Produce request's fields do not fit its length, or it has more partitions than "
        "limits.max_partitions_per_request.",
        "See detail; raise the limit, or look for a defective client.",
    ),
    "request_names": _wrong(
        "A Produce request has names longer than any topic may have.",
        _DAMAGED,
    ),
    # ---- versions ----
    "request_version": _wrong(
        "The gate does not carry this API, or this version of it.",
        "Upgrade batchval, or configure the client to ask which versions there are (ApiVersions).",
    ),
    "version_too_old": _wrong(
        "Kafka 4 does not serve this version of the API (KIP-896).",
        "Upgrade the client, or set bridge; batchval proxy --clients lists such clients.",
    ),
    # ---- SASL ----
    "sasl_mechanism": _wrong(
        "The client asked for a SASL mechanism that SaslHandshake 0 cannot carry through the gate.",
        "Upgrade the client, or let it use PLAIN or SCRAM.",
    ),
    "authentication_failed": _wrong(
        "The broker did not accept the client's credentials.",
        "Check the client's mechanism, user and password.",
    ),
    # ---- verdicts ----
    "denied": _wrong(
        "The settings deny this API, and the request has no answer (acks=0).",
        "See the denied lines of this client, and deny in the settings.",
    ),
    "denied_early": _wrong(
        "A request of an API that some may not use came before the client's principal was known.",
        "Send requests after the answer to SaslAuthenticate, as Kafka's clients do.",
    ),
    "denied_size": _wrong(
        "A denied request is too large to be answered.",
        "See the denied lines of this client, and deny in the settings.",
    ),
    "acks_0_refused": _wrong(
        "A batch sent with acks=0 was refused; the end of the connection reports it.",
        "See the refused lines of this client.",
    ),
    # ---- slow clients ----
    "handshake": _wrong(
        "No whole request came in limits.handshake_timeout_ms.",
        "Look for port scans and probes that stay connected.",
    ),
    "frame_timeout": _wrong(
        "A request did not come in limits.frame_timeout_ms.",
        _SLOW.format("frame_timeout_ms"),
    ),
    "frame_slow": _wrong(
        "limits.max_bytes_held was reached, and this client's request did not grow.",
        _SLOW.format("max_bytes_held"),
    ),
    "answers_untaken": _wrong(
        "limits.max_bytes_held was reached, and this client took no answers for 10 seconds.",
        _SLOW.format("max_bytes_held"),
    ),
    "linger": _wrong(
        "What was left to deliver could not be delivered in limits.drain_timeout_ms.",
        _SLOW.format("drain_timeout_ms"),
    ),
    # ---- brokers ----
    "broker_unknown": _wrong(
        "The client connected by the name of a broker that no Metadata answer has named.",
        "Check that this broker is in the cluster; set upstream.admin where it requires SASL.",
    ),
    "upstream_unreachable": _wrong(
        "The gate could not connect to the broker.",
        "See detail; check the broker, and the network to it.",
    ),
    "upstream_lost": _wrong(
        "The broker closed the connection before it answered.",
        "See the broker's log: it restarts, or does not accept the request or its sender.",
    ),
    "upstream_frame": _wrong(
        "The broker sent an answer with a length that no answer has.",
        "Check that upstream.bootstrap names Kafka brokers.",
    ),
    "answer_malformed": _wrong(
        "An answer of the broker could not be read where the gate has to change it.",
        "See detail; check the versions of broker and gate.",
    ),
    "answer_out_of_turn": _wrong(
        "The broker answered another request than the oldest one.",
        "Look for a proxy or load balancer between gate and broker.",
    ),
    "own_request": _wrong("The gate connected to itself.", "Correct upstream.bootstrap."),
    # ---- the gate ----
    "judging": _wrong("A batch could not be validated.", _BUG),
    "fault": _wrong("The gate failed to handle the session.", _BUG),
}

_UNKNOWN: Final = _wrong("The gate ended the connection.", "See the other lines of the log.")


def reason_of(word: str) -> EndReason:
    """Return what is known of a reason; a general answer for one that the table does not have."""
    return REASONS.get(word, _UNKNOWN)


def explained() -> str:
    """Return all reasons with their meanings, for the help of a metric."""
    return " ".join(
        f"{word}: {reason.meaning}" for word, reason in REASONS.items() if word != CLIENT
    )
