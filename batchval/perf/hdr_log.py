"""A histogram as HdrHistogram's tools read it: a log of one or more intervals.

    #[Histogram log format version 1.3]
    #[StartTime: 1441812279.474 (seconds since epoch)]
    "StartTimestamp","Interval_Length","Interval_Max","HistogramString"
    0.000,1.007,2.769,HISTFAAAA…

The string is base64 of the cookie 0x1c849314, the length of what follows and zlib's form of: cookie
0x1c849313, the counters' length, offset 0, significant digits, lowest and highest value (8 bytes
each), ratio 1.0 (8 bytes); then each counter as a ZigZag LEB128 number (in 9 bytes at most), and a
run of n zeros as -n. All big-endian. Values are µs, and Interval_Max is in ms.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable

from batchval.perf.histogram import Histogram

__all__ = ["encode", "log"]

_COOKIE = 0x1C849303 | 0x10
_COMPRESSED_COOKIE = 0x1C849304 | 0x10
_DIGITS = 3
_HOUR_US = 3_600_000_000


def encode(histogram: Histogram) -> str:
    """Return the HistogramString: HdrHistogram's compressed V2 form in base64."""
    body = bytearray()
    at = 0
    for counter, count in histogram.counts():
        if counter > at:
            body += _zigzag(at - counter)
        body += _zigzag(count)
        at = counter + 1
    highest = max(histogram.max, _HOUR_US)
    header = struct.pack(">iiiiqqd", _COOKIE, len(body), 0, _DIGITS, 1, highest, 1.0)
    packed = zlib.compress(header + body)
    return base64.b64encode(struct.pack(">ii", _COMPRESSED_COOKIE, len(packed)) + packed).decode(
        "ascii"
    )


def _zigzag(value: int) -> bytes:
    left = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while left > 0x7F and len(out) < 8:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)  # the ninth byte has eight bits
    return bytes(out)


def log(intervals: Iterable[tuple[str | None, float, float, Histogram]], start: float) -> str:
    """Return a whole log.

    Each interval is: tag or None, start in seconds after ``start`` (seconds of the epoch), length,
    histogram.

    """
    lines = [
        "#[Latencies in microseconds, Interval_Max in milliseconds]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {start:.3f} (seconds since epoch)]",
        f"#[BaseTime: {start:.3f} (seconds since epoch)]",
        '"StartTimestamp","Interval_Length","Interval_Max","HistogramString"',
    ]
    for tag, begin, length, histogram in intervals:
        words = "" if tag is None else f"Tag={tag},"
        lines.append(
            f"{words}{begin:.3f},{length:.3f},{histogram.max / 1000:.3f},{encode(histogram)}"
        )
    return "\n".join(lines) + "\n"
