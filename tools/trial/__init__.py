"""Try the wheels of dist/wheels on bare systems: CPython of each version, glibc and musl, ARM64.

    python -m tools.trial [--only SYSTEM] [--wheels FOLDER] [--jobs N]

In each system, without a network, a compiler and this source tree: pip installs the wheel with its
dependencies from a folder; batchval --version; batchval check of a good and of a damaged segment;
batchval conformance on the fixtures; every module is imported (tools/dist_probe.py).

bookworm, trixie, sid            Debian's smallest system (debootstrap) with its CPython
here-3.12                        CPython of this machine, of pyenv: no current Debian has 3.12
musl-3.11, musl-3.13             CPython for musl, compiled here (tools/trial/musl.py)
arm-bookworm, arm-trixie, arm-sid
                                 Debian's CPython for ARM64, run by qemu-user
arm-musl-3.11                    CPython for musl on ARM64, run by qemu-user

Needs root on Debian, debootstrap, qemu-user-static, gcc and gcc-aarch64-linux-gnu, the Debian
archive, PyPI, and the environment of make wheels with CPython 3.11. What is fetched and compiled is
kept in build/trial. Prints a table. Exit codes: 0, 1 a wheel failed or is missing.
"""
