"""Choose the addresses of brokers that clients are sent.

host   advertised_host, or the listener's server name for the broker; "" stands for the host
       that the client itself has connected to
port   advertised_port; or advertised_first_port + the broker's id; or the port of the listener
"""

from __future__ import annotations

from batchval.proxy.settings.host_patterns import HostPattern
from batchval.proxy.settings.options import ProxyOptions

__all__ = ["Advertised"]


class Advertised:
    """The addresses of one listener as its clients see them.

    ``is_fixed``  whether all clients see the same
    """

    def __init__(self, options: ProxyOptions) -> None:
        self._port = options.advertised_port
        self._first_port = options.advertised_first_port
        self._bootstrap = ""
        if options.sni is not None:
            self._bootstrap = options.sni.bootstrap
            self._hosts = options.sni.broker
        else:
            self._hosts = HostPattern.parse(options.advertised_host or "")
            if self._hosts.after is None:
                self._bootstrap = self._hosts.before
        self.is_fixed = bool(self._bootstrap)

    def bootstrap(self, port: int) -> tuple[str, int]:
        """Return the address that stands for a broker without an id. ``port`` is the listener's."""
        return self._bootstrap, self._port or port

    def broker(self, node_id: int, port: int, *, is_wanted: bool) -> tuple[str, int]:
        """Return the address of a broker whose listener is at ``port``.

        ``is_wanted``  whether that is the port of the settings: a NAT maps only those
        """
        if self._port is not None:
            port = self._port
        elif self._first_port is not None and is_wanted:
            port = self._first_port + node_id
        return self._hosts.host_of(node_id), port
