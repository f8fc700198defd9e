"""Whether a place may be reached: the owner's settings over the table of addresses that are not public."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from sessiontree.contracts.errors import ConfigError, ToolError
from sessiontree.web.address import WebAddress, denied, normal_host
from sessiontree.web.ranges import Ip, Range, not_public
from sessiontree.web.settings import allowed_network, allowed_place


class AddressRules:
    """Judges addresses before anything is sent there.

    Args:
        ports: Of public hosts.
        allow_private: ``host:port`` or networks, as in ``WebSettings``.

    Raises:
        ConfigError: an entry is neither.
    """

    def __init__(self, *, ports: Iterable[int], allow_private: Iterable[str]) -> None:
        self._ports = frozenset(ports)
        entries = tuple(allow_private)
        try:
            self._networks = tuple(allowed_network(entry) for entry in entries if "/" in entry)
            places = [allowed_place(entry) for entry in entries if "/" not in entry]
            self._places = frozenset((normal_host(host), port) for host, port in places)
        except (ValueError, ToolError) as error:
            raise ConfigError(f"allow_private: {error}") from error

    def check_place(self, address: WebAddress) -> None:
        """Refuse what its port, or an IP address as its host, forbids; a name's addresses come later.

        Raises:
            PermissionDenied: says which rule.
        """
        if address.port not in self._ports and (address.host, address.port) not in self._places:
            ports = ", ".join(str(port) for port in sorted(self._ports))
            raise denied(f"{address.authority}: port {address.port} is not read; ports are {ports}")
        if address.ip is not None:
            self.check_address(address.host, address.port, address.ip)

    def vetted(self, host: str, port: int, found: Sequence[str]) -> list[str]:
        """Return a host's addresses in their one form, each once, in order; all of them may be connected to.

        Raises:
            PermissionDenied: one of them may not; then none is used.
        """
        addresses = [_parsed(text) for text in found]
        for address in addresses:
            self.check_address(host, port, address)
        return list(dict.fromkeys(str(address) for address in addresses))

    def check_address(self, host: str, port: int, address: Ip) -> None:
        """Refuse an address that is not public, unless the owner allowed this host, or this network.

        Raises:
            PermissionDenied: names address and rule.
        """
        found = not_public(address)
        if found is None or self._is_allowed(host, port, address, found):
            return
        shown = str(address) if host == str(address) else f"{host} ({address})"
        raise denied(f"{shown} is no public address: {found.reason} ({found.network})")

    def _is_allowed(self, host: str, port: int, address: Ip, found: Range) -> bool:
        if any(address in network for network in self._networks):
            return True
        return found.sort == "local" and (host, port) in self._places


def _parsed(text: str) -> Ip:
    """Return an address as a resolver gives it; a zone is left out, since it is a link's own anyway."""
    bare = text.partition("%")[0]
    try:
        return IPv6Address(bare) if ":" in bare else IPv4Address(bare)
    except AddressValueError as error:
        raise denied(f"{text!r} is no address, though the resolver says so") from error
