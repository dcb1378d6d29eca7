"""The name that a client's SASL token claims."""

from __future__ import annotations

import pytest

from batchval.proxy.session.sasl_exchange import SaslExchange


@pytest.mark.parametrize(
    ("mechanism", "token", "principal"),
    [
        ("PLAIN", b"\0alice\0secret", "User:alice"),
        ("PLAIN", b"alice", ""),
        ("SCRAM-SHA-256", b"n,,n=alice,r=nonce", "User:alice"),
        ("SCRAM-SHA-512", b"n,,n=a=2Cb=3Dc,r=nonce", "User:a,b=c"),
        # KIP-48: the name is that of a delegation token, whose owner the broker alone knows
        ("SCRAM-SHA-256", b"n,,n=tokenid123,r=nonce,tokenauth=true", ""),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer x\x01\x01", ""),
        ("GSSAPI", b"\x60\x82", ""),
    ],
)
def test_the_principal_of_the_first_token(mechanism: str, token: bytes, principal: str) -> None:
    exchange = SaslExchange()
    exchange.begin(mechanism)
    assert exchange.client_token(memoryview(token)).principal == principal
