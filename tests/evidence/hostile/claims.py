"""Claims under hostile bytes: in tags, payloads and headers of magic 3, and at rest.

Each case is a mutated batch. With the claims that are true of it, trust must answer as without
claims; with any others, verify must not call a lie honest; a header's verdict is that of the batch
it carries; and strict never answers -1.
"""

from __future__ import annotations

import dataclasses
import random
import struct
from typing import Any

from batchval.core.batches.columns import BatchColumns
from batchval.core.batches.result import FIGURES
from batchval.core.batches.validator import LogValidator
from batchval.core.claims import (
    BatchClaims,
    attach,
    carrier_of,
    compute,
    read,
    strip,
    to_tag,
)
from batchval.errors import BatchvalError
from tests.evidence.hostile.buffers import buffer_of
from tests.evidence.hostile.differential import Setup

__all__ = ["claims_case"]

_SAME = ("ok", "error_code", "rule", "record_errors", "reports", "next_offset", "max_timestamp")
_CORNERS = (-(2**63), -1, 0, 1, 2**31, 2**63 - 1)


def _different(what: str, ours: Any, expected: Any) -> list[str]:
    return [
        f"{what}: {name} {getattr(ours, name)!r}, without claims {getattr(expected, name)!r}"
        for name in _SAME
        if getattr(ours, name) != getattr(expected, name)
    ]


def _some_claims(rng: random.Random, true: BatchClaims | None, data: bytes) -> BatchClaims:
    """Return claims, often wrong by one, sometimes true."""
    stated = true or BatchClaims(
        int.from_bytes(data[27:35], "big", signed=True), data[60], 2, 61 + 100, 10
    )
    field = rng.choice((*BatchClaims._fields, None))
    if field is None:
        return stated
    if field == "fields":  # number 1 has schema ids, readers pass over others
        number = rng.choice([1, rng.randrange(2, 2**32)])
        return stated._replace(fields=((number, _some_content(rng, true)),))
    bits = {"batch_min_timestamp": 64, "null_keys": 8}.get(field, 32)
    value = rng.choice([*_CORNERS, getattr(stated, field) + rng.choice([-1, 1, 2])])
    value &= (1 << bits) - 1
    return stated._replace(**{field: value - (1 << bits) * (value >> bits - 1)})


def _some_content(rng: random.Random, true: BatchClaims | None) -> bytes:
    """Return contents of field 1: the true one, one with more or fewer ids, or any bytes."""
    ids = set(true.schema_ids or ()) if true is not None else set()
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(200))
    if rng.random() < 0.5:
        ids ^= {rng.choice([0, 7, 1 << 24, 2**31 - 1, -1])}
    return struct.pack(f">B{len(ids)}i", rng.randrange(3), *sorted(ids))


def _is_true(stated: BatchClaims, true: BatchClaims | None) -> bool:
    if true is None:
        return False
    if stated.schema_ids is not None:
        known = set(true.schema_ids or ()) if true.schema_ids is not None else None
        if (
            known is None
            or not known <= set(stated.schema_ids)
            or stated.no_value_null > true.no_value_null
        ):
            return False
    least = true._replace(null_keys=0) if true.null_keys != 1 else true
    return stated[:5] in (true[:5], least[:5])


def _three(claims: BatchClaims) -> BatchClaims:
    """Return the claims that a header of magic 3 has."""
    return claims._replace(uncompressed_bytes=None, max_record_bytes=None, fields=())


def _in_payload(data: bytes, stated: BatchClaims) -> list[str]:
    """Return the errors of claims that are put into a payload and removed again."""
    bare = strip(data) if carrier_of(data) == "payload" else data
    if carrier_of(bare) is not None:
        return ["claims are left in the payload"]
    try:
        out = attach(data, stated, carrier="payload")
    except BatchvalError:
        return []
    if read(out) != stated or strip(out) != bare:
        return [f"claims in a payload are read as {read(out)}, {stated} were put there"]
    return []


def _at_rest(
    data: bytes, claimed: BatchClaims, true: BatchClaims | None, limit: int | None
) -> list[str]:
    """Return the errors of claims that are used for, and computed from, a segment's batch."""
    try:
        out = attach(
            strip(data) if carrier_of(data) == "payload" else data, claimed, carrier="payload"
        )
    except BatchvalError:
        return []
    validator = LogValidator(profile="log", max_decompressed_bytes=limit)
    walked, drawn, trusted = (
        _resting(validator.check_batches(buffer_of(out), deep=trust is None, trust_claims=trust))
        for trust in (None, (1.0, bytes(16)), (1e-18, bytes(16)))
    )
    found = []
    if walked["rule"] == "14":  # the payload was damaged before it got claims
        taken = [
            one for one in (drawn, trusted) if (one["rule"], one["figures"]) != ("14", "header")
        ]
        return [f"at rest: {one} although its checksum is wrong" for one in taken]
    honest = _is_true(claimed, true)
    if drawn["claims"] in ("honest", "lying") and (drawn["claims"] == "honest") != honest:
        found.append(f"at rest: {claimed} is called {drawn['claims']}, {true} is true")
    if drawn["claims"] is not None and drawn["rule"] not in (walked["rule"], "L7"):
        found.append(f"at rest: {drawn} if drawn, {walked} without trust")
    if drawn["rule"] == "L7" and drawn["claims"] != "lying":
        found.append(f"at rest: L7 for claims that are {drawn['claims']}")
    if trusted["figures"] != "claims":
        return found if trusted == drawn else [*found, f"at rest: {trusted} is not {drawn}"]
    if drawn["figures"] != "sample" or trusted["rule"] is not None:
        found.append(f"at rest: {trusted} if trusted, {drawn} if drawn")
    if honest and any(
        trusted[name] != walked[name] for name in ("uncompressed_size", "max_record_bytes")
    ):
        found.append(f"at rest: honest claims give {trusted}, records {walked}")
    return found


def _resting(columns: BatchColumns) -> dict[str, Any]:
    sizes = {name: columns[name].tolist() for name in ("uncompressed_size", "max_record_bytes")}
    figures, row = FIGURES[columns["figures"][0]], columns[0]
    return sizes | {
        "figures": figures,
        "claims": row.claims,
        "rule": row.rule,
        "reason": row.reason,
    }


def claims_case(setup: Setup, data: bytes, seed: int) -> list[str]:
    """Return the errors in the answers to this case."""
    rng = random.Random(seed)
    policy = dataclasses.replace(setup.policy, accept_claims_header=True)
    limit = setup.strict.max_decompressed_bytes
    validator = LogValidator(policy, max_decompressed_bytes=limit)
    call = {
        k: setup.cfg[k]
        for k in ("origin", "produce_version", "first_offset", "leader_epoch", "to_magic")
    }
    call["now_ms"] = setup.cfg["now"]
    found = []
    if (
        len(data) > 20 and rng.random() < 0.2
    ):  # as it is, but for the magic: claims that are whatever stands there
        raw = data[:16] + b"\3" + data[17:]
        for word in ("ignore", "verify", "trust"):
            result = validator.check(buffer_of(raw), claims=(None, word), **call)
            str(result), result.batch_claims
            if int(result.error_code) == -1:
                found.append(f"header {word}: strict answers -1: {result}")
    if len(data) < 61 or data[16] != 2:
        return found
    try:
        true = compute(data, max_decompressed_bytes=limit)
        full = compute(data, max_decompressed_bytes=limit, schema_ids=True)
    except BatchvalError:  # not one whole batch
        return found
    slow = validator.validate(buffer_of(data), **call)
    passes = validator.check(buffer_of(data), **call).ok
    if (true is None) != (full is None) or (full is not None and full._replace(fields=()) != true):
        found.append(f"with schema ids {full} is true, without {true}")
    stated = _some_claims(rng, full, data)
    honest_in = {
        "tag": _is_true(stated, full),
        "header": _is_true(_three(stated), true and _three(true)),
    }
    if slow.batch_claims is not None and slow.batch_claims != true:
        found.append(f"{slow.batch_claims} is stated to be true, {true} is")
    crc = int.from_bytes(data[17:21], "big")
    three = attach(data, stated)
    if strip(three) != data:
        found.append("attach and strip do not give the bytes back")
    found += _in_payload(data, stated)
    found += _at_rest(data, stated, full, limit)
    for word in ("ignore", "verify", "trust"):
        by_tag = validator.validate(buffer_of(data), claims=(to_tag(stated, crc), word), **call)
        by_header = validator.validate(buffer_of(three), claims=(None, word), **call)
        for carrier, result in (("tag", by_tag), ("header", by_header)):
            name, honest = f"{carrier} {word} {stated} {result.claims}", honest_in[carrier]
            str(result)
            if int(result.error_code) == -1:
                found.append(f"{name}: strict answers -1: {result}")
            if result.claims == "honest" and not honest:
                found.append(f"{name}: a lie is called honest, {true} is true")
            if result.claims == "lying" and honest:
                found.append(f"{name}: the truth is called a lie")
            if result.claims == "trusted" and (
                word != "trust" or result.path != "claims" or not result.ok
            ):
                found.append(f"{name}: trusted by path {result.path}, {result}")
            if result.claims == "trusted" and not honest:
                continue  # believed: what trust costs
            # a lie refuses what would be accepted; the size of a batch built anew is asked after it
            if carrier == "header" and result.claims == "lying" and passes:
                if result.rule is None or result.rule.id != "L7":
                    found.append(f"{name}: not L7 but {result.rule}")
                continue
            found += _different(name, result, slow)
            if result.output != slow.output:
                found.append(f"{name}: other output")
    return found
