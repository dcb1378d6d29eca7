"""The page of bench/claims/broker_cpu.py: what claims save in a broker, end to end."""

from __future__ import annotations

from typing import Any

from bench.pages.text import how, load_of, measured, number, page, paragraph, table

TITLE = "Claims in a Kafka broker"
ABOUT = (
    "CPU of Kafka's broker with the agent, of its producer and of the gate, with and without claims"
)
COMMAND = "python -m bench broker --write"
SOURCES = ("broker",)

STOCK, AGENTS = "stock", "agents"
#: a ratio above this is "little"
LITTLE = 0.9
KEPT_UP = 0.95  # share of the pace
Rows = list[dict[str, Any]]


def interval(ratio: dict[str, float]) -> str:
    """Return a ratio with its interval."""
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def micro(row: dict[str, Any], *names: str) -> str:
    """Return microseconds for a batch of these processes together; an empty string without them."""
    found = [row["us"][name] for name in names if name in row["us"]]
    return number(sum(found)) if found else ""


def share(row: dict[str, Any], *names: str) -> str:
    """Return the share of a core of these processes together."""
    return f"{sum(row['cores'].get(name, 0.0) for name in names):.0%}"


def stock_of(rows: Rows, row: dict[str, Any]) -> dict[str, Any]:
    """Return the stock broker's row of the same load."""
    load = ("codec", "kilobytes", "partitions", "mb")
    return next(
        one for one in rows if one["way"] == STOCK and all(one[name] == row[name] for name in load)
    )


def place_of(part: dict[str, Any]) -> str:
    """Return the sentence about where a part was measured."""
    settings = part["settings"]
    versions = f"Kafka {settings['kafka']}, Java {settings['java']}"
    rounds = settings["rounds"]
    effort = f"{rounds} round{'s' * (rounds > 1)} of {settings['seconds']:g} s for each way."
    return f"{measured(part, versions)} {effort} {load_of(settings['load'])}"


def whole_table(part: dict[str, Any]) -> str:
    """Return the whole broker's figures, a row for each codec."""
    rows = part["summaries"]
    lines = []
    for row in (row for row in rows if row["way"] == AGENTS):
        stock = stock_of(rows, row)
        ratio = interval(row["ratios"]["servers"])
        shares = (share(stock, "broker"), share(row, "broker"))
        lines.append([row["codec"], micro(stock, "broker"), micro(row, "broker"), ratio, *shares])
    headings = (
        "",
        "stock, µs",
        "trust, µs",
        "ratio (95 %)",
        "stock, of a core",
        "trust, of a core",
    )
    return table(headings, lines)


def whole(part: dict[str, Any]) -> list[str]:
    """Return the section of the whole broker."""
    return [
        "## The whole broker",
        paragraph(
            "CPU of the broker's process for a batch, all threads: network, validation, log and",
            "garbage collection. Recorded Produce requests of one batch, 64 kB, 20 MB/s on the",
            "wire, one partition, claims in tags. Both ways send the same requests to one JVM in",
            "turns; their topics have different policies.",
            place_of(part),
        ),
        whole_table(part),
        little_saved(part["summaries"], part["idle_cores"]),
    ]


def little_saved(rows: Rows, idle_cores: float) -> str:
    """Return why some codecs save little; nothing where each saves much."""
    found = [
        f"{row['codec']} ({row['ratios']['servers']['median']:.2f})"
        for row in rows
        if row["way"] == AGENTS and row["ratios"]["servers"]["median"] > LITTLE
    ]
    names = f"Little is saved with {', '.join(found)}." if found else ""
    return paragraph(
        names,
        "Trusted claims remove decompression and the walk over the records. Receiving the request,",
        "the CRC, the append and the response stay, and so does what this broker takes without",
        f"load: {idle_cores:.1%} of a core. So the gain depends on what the codec's decompression",
        "costs.",
    )


def policies(part: dict[str, Any]) -> list[str]:
    """Return the section of policies."""
    rows = part["summaries"]
    lines = []
    for row in rows:
        ratio = interval(row["ratios"]["servers"]) if "ratios" in row else ""
        lines.append([row["codec"], row["way"], micro(row, "broker"), ratio])
    return [
        "## Policies and carriers",
        paragraph(
            "The same load. `audit:0.01` verifies one batch of a hundred. `verify` decompresses",
            "and compares every batch: it measures honesty and saves nothing.",
            place_of(part),
        ),
        table(("", "policy", "broker, µs a batch", "over stock (95 %)"), lines),
    ]


def gate(part: dict[str, Any]) -> list[str]:
    """Return the section of the gate before the broker."""
    rows = part["summaries"]
    lines = []
    for row in rows:
        ratio = interval(row["ratios"]["servers"]) if "ratios" in row else ""
        own = micro(row, "gate", "relay")
        both = micro(row, "broker", "gate", "relay")
        lines.append([row["codec"], row["way"], own, micro(row, "broker"), both, ratio])
    return [
        "## The gate before the broker",
        paragraph(
            "Requests without claims. `stock`: straight to the broker, which decompresses. The",
            "others go through a gate that decompresses, validates and attaches claims, to a",
            "topic that trusts them. The ratio is gate and broker together over the stock broker",
            "alone. The batch is decompressed once either way, and passes one more hop. `relay` is",
            "a program in C that only passes bytes to the stock broker: what a hop costs at least.",
            "Where the ratio is above 1, the hop costs more than the gate saves.",
            place_of(part),
        ),
        table(
            ("", "way", "gate or relay, µs a batch", "broker, µs", "both, µs", "over stock (95 %)"),
            lines,
        ),
    ]


def grid(part: dict[str, Any]) -> list[str]:
    """Return the section of Kafka's producer."""
    parts = [
        "## With Kafka's producer",
        paragraph(
            "`stock`: the stock producer and the broker's own path. `agents`: the producer with",
            "its agent, to a topic that trusts. `gate`: the stock producer through a gate with",
            "`claims_out: tag`, to a topic that trusts. CPU of each process for a batch, µs. The",
            "ratios are over the same processes in `stock`; servers are broker and gate. *fed* is",
            "the share of the pace that was kept. Where it is below 95 %, this machine has too few",
            "cores for producer, gate and broker at once.",
            place_of(part),
        ),
    ]
    rows = part["summaries"]
    parts += [overview(rows), grid_text(rows)]
    ratios = ("servers over stock (95 %)", "all", "fed")
    headings = ("MB/s", "partitions", "way", "producer", "gate", "broker", *ratios)
    for codec in dict.fromkeys(row["codec"] for row in rows):
        for kilobytes in dict.fromkeys(row["kilobytes"] for row in rows):
            chosen = [row for row in rows if (row["codec"], row["kilobytes"]) == (codec, kilobytes)]
            parts += [f"### {codec}, {kilobytes} kB", table(headings, map(grid_row, chosen))]
    return parts


def overview(rows: Rows) -> str:
    """Return the ratios of the servers: one line a codec and size, one column a pace."""
    ratios = {
        (row["codec"], row["kilobytes"], row["mb"], row["partitions"], row["way"]): row["ratios"][
            "servers"
        ]["median"]
        for row in rows
        if "ratios" in row
    }
    paces = sorted({at[2:4] for at in ratios})
    lines = []
    for load in dict.fromkeys(at[:2] for at in ratios):
        cells = []
        for pace in paces:
            found = [ratios.get((*load, *pace, way)) for way in (AGENTS, "gate")]
            cells.append(" / ".join("-" if ratio is None else f"{ratio:.2f}" for ratio in found))
        lines.append([f"{load[0]}, {load[1]} kB", *cells])
    columns = (
        f"{mb:g} MB/s, {partitions} partition{'s' * (partitions > 1)}" for mb, partitions in paces
    )
    return table(("servers over stock: agents / gate", *columns), lines)


def grid_row(row: dict[str, Any]) -> list[str]:
    """Return one line of the grid."""
    ratios = row.get("ratios")
    cells = [f"{row['mb']:g}", str(row["partitions"]), row["way"]]
    cells += [micro(row, name) for name in ("producer", "gate", "broker")]
    cells += [interval(ratios["servers"]), f"{ratios['all']['median']:.2f}"] if ratios else ["", ""]
    return [*cells, "" if row["fed"] >= KEPT_UP else f"{row['fed']:.0%}"]


def grid_text(rows: Rows) -> str:
    """Return what the grid shows of loads that save little, and of the producer's own cost."""
    agents = [row for row in rows if row["way"] == AGENTS]
    little = [row for row in agents if row["ratios"]["servers"]["median"] > LITTLE]
    costs = sorted(row["ratios"]["producer"]["median"] for row in agents)
    if not costs:
        return ""
    middle = costs[len(costs) // 2]
    sentence = "CPU of the producer with its agent over the stock producer's: "
    sentence += f"{middle:.2f}, the middle of {len(costs)} loads."
    return page(paragraph(sentence), little_of(little, agents))


def little_of(little: Rows, agents: Rows) -> str:
    """Return in how many loads of each codec the broker saves little, and why."""
    if not little:
        return ""
    counts = []
    for codec in dict.fromkeys(row["codec"] for row in agents):
        found, of = (sum(row["codec"] == codec for row in rows) for rows in (little, agents))
        counts.append(f"{codec} {found} of {of}")
    return paragraph(
        f"The broker with the agent saves less than {1 - LITTLE:.0%} in {len(little)} of",
        f"{len(agents)} loads: {', '.join(counts)}. There, requests, the append and the JVM's own",
        "work outweigh decompression, or the difference is below what differs between rounds.",
    )


SECTIONS = {"whole": whole, "policies": policies, "gate": gate, "grid": grid}


def render(results: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    parts = results["broker"]["parts"]
    opening = paragraph(
        "Kafka's broker decompresses every batch that a client sends (KAFKA-8364). With the agent",
        "of [broker/](../../broker) it reads claims, and decompresses what they do not settle.",
        how("claims-in-a-broker"),
    )
    return page(opening, *(text for name, part in parts.items() for text in SECTIONS[name](part)))
