"""Messages to systemd about this process (sd_notify): ready, or another main process."""

from __future__ import annotations

import contextlib
import os
import socket

__all__ = ["notify"]


def notify(state: str) -> None:
    """Send a state such as ``READY=1`` or ``MAINPID=4711``, where systemd asks for it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
