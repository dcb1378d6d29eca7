"""What the tests of this folder share: the oracle, where there is a JDK."""

import pytest

from tests.conformance import oracle


@pytest.fixture(scope="session")
def kafka():
    """The oracle, built; skips where it cannot be (a build that fails is an error, not a skip)."""
    try:
        oracle.java(answers=True)
        oracle.jar()
    except oracle.OracleUnavailable as error:
        pytest.skip(str(error))
    return oracle
