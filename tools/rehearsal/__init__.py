"""Rehearse a release: install batchval as a user does, use it, and upgrade from the previous wheel.

    python -m tools.rehearsal [--wheel FILE] [--previous REF] [--keep]

The machine is a bare Debian tree (debootstrap, in build/rehearsal/base) without a compiler and
without this source tree. It shares the network of the host, but no name resolves in it. pip in the
tree asks no index: it takes the new wheel, the previous wheel, and their dependencies as wheels
from folders of the tree. A Kafka 4.4 broker runs on the host; its data lies in the tree.

1. The previous wheel: install, settings, the gate before the broker, claims, an audit.
2. The new wheel in an environment of its own: install, check, the gate before the broker, an audit.
3. The previous wheel's environment, upgraded: what the previous wheel has written is read.

Needs root, the Debian archive, PyPI, a JDK 17 and Maven, and the environment of make build with the
Python version of the tree. Prints one line for each step. Logs are in build/rehearsal/logs.

Exit codes: 0, 1 a step failed, 2 something that the rehearsal needs is missing, 130 interrupted.
"""
