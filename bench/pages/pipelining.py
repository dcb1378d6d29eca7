"""The page of bench/pipelining: whole producers over a long path."""

from __future__ import annotations

from typing import Any

from bench.pages.text import how, measured, page, paragraph, table, versions_of

TITLE = "Pipelining"
ABOUT = "producers with several requests in flight over round trips of up to 140 ms"
COMMAND = "make bench-pipelining"
SOURCES = ("pipelining-table",)

#: cells of the table of producers, as command line flags
FLAGS = {
    "one": "-partition 0",
    "one-1": "-partition 0 -max-open-requests 1",
    "large": "-partition 0 -flush-bytes 1000000",
    "acks0": "-partition 0 -required-acks 0",
    "many": "round robin, 128 partitions",
    "tls": "-partition 0, TLS",
    "long": "-partition 0 -flush-bytes 1000000, 1,000 requests",
}
LINKS = {
    "tun": "TUN devices between two network namespaces",
    "relay": "a delaying relay on one host",
}


def producers(result: dict[str, Any]) -> str:
    """Return throughput of whole producers, and requests in flight on the wire."""
    settings = result["settings"]
    used, (low, high) = ", ".join(LINKS[name] for name in settings["links"]), settings["load"]
    opening = paragraph(
        measured(result, versions_of(result)),
        f"Link: {used}; {settings['brokers']} brokers, -Xmx{settings['heap']} each; records of 1,000 bytes,",
        "batches sent at 500,000 bytes or after 100 ms. Load average:",
        f"{low:.1f} to {high:.1f}.",
        *(f"Not measured: {peer} ({reason})." for peer, reason in settings["missing"].items()),
    )
    headings = (
        "brokers",
        "client",
        "flags",
        "RTT, ms",
        "records",
        "rounds",
        "max records/s",
        "max MiB/s",
        "max in flight",
        "steady records/s",
        "share of the bound",
        "bytes per request",
    )
    return page(opening, table(headings, map(_producer, result["rows"])))


def _in_flight(one: dict[str, Any]) -> str:
    """Return the most requests in flight; bold above the client's own limit."""
    if one["cell"] == "acks0" or one.get("in_flight") is None:
        return "–"
    text = str(one["in_flight"])
    if one["cell"] == "many":
        text = f"{one['in_flight_total']} ({text} per connection)"
    elif one["cell"] == "tls":
        text += " (own count)"
    return f"**{text}**" if one.get("cap_kept") is False else text


def _producer(one: dict[str, Any]) -> list[str]:
    flags = FLAGS[one["cell"]] + ("" if one["congestion"] == "cubic" else f", {one['congestion']}")
    if "error" in one:
        return ["", one["peer"], flags, f"{one['rtt_ms']:g}", one["error"], *[""] * 7]
    steady = share = size = ""
    if "steady_records_per_s" in one:
        steady, size = f"{one['steady_records_per_s']:,.0f}", f"{one['request_bytes']:,.0f}"
        if one["rtt_ms"] >= 50 and one["cell"] != "many":
            share = f"{one['steady_records_per_s'] / one['bound_records_per_s']:.2f}"
    return [
        str(one["brokers"]) if one["cell"] == "many" else "1",
        one["peer"],
        flags,
        f"{one['rtt_ms']:g}",
        f"{one['records']:,}",
        str(one["rounds"]),
        f"{one['max_records_per_s']:,.1f}",
        f"{one['max_mib_per_s']:.2f}",
        _in_flight(one),
        steady,
        share,
        size,
    ]


def render(results: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    opening = paragraph(
        "This page compares producers that may have several requests in flight, over long round",
        "trips: batchval, Java's, librdkafka, franz-go and four versions of sarama before Apache",
        "Kafka. The bound of one partition is requests in flight × bytes of a batch / round trip.",
        how("pipelining"),
    )
    reading = paragraph(
        'For all clients "max" is the best whole run, slow start included, and "steady" its',
        'second half, when the congestion window has grown. "Max in flight" is counted on the',
        "wire by correlation ids; in bold where it is above the client's limit. With TLS it is",
        "the client's own count, without acknowledgements there is none. librdkafka with",
        "idempotence has one request per partition in flight, whatever its limit.",
    )
    return page(
        opening,
        "## Producers",
        producers(results["pipelining-table"]),
        reading,
    )
