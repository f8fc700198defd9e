"""What the owner allows, and that nothing else follows from it."""

from __future__ import annotations

import pytest

from sessiontree.contracts.errors import ConfigError, PermissionDenied
from sessiontree.web.address import parse_address
from sessiontree.web.client import AddressRules
from sessiontree.web.settings import FOREIGN_PORTS, WebSettings
from sessiontree.web.web import OutboundWeb


def rules(*allowed: str, ports: tuple[int, ...] = (80, 443)) -> AddressRules:
    """Return rules with some places of the owner's own."""
    return AddressRules(ports=ports, allow_private=allowed)


@pytest.mark.parametrize(
    ("allowed", "host", "port", "address"),
    [
        ("Intranet.:8080", "intranet", 8080, "10.1.2.3"),
        ("127.1:9000", "127.0.0.1", 9000, "127.0.0.1"),
        ("[::1]:9000", "::1", 9000, "::1"),
        ("10.1.0.0/16", "anything.example", 80, "10.1.255.1"),
        ("fd12:3456::/32", "anything.example", 443, "fd12:3456::1"),
    ],
)
def test_allowed_place_is_reached(allowed: str, host: str, port: int, address: str) -> None:
    """By host and port, whatever private address it has, or by network."""
    assert rules(allowed).vet_addresses(host, port, [address]) == [address]


@pytest.mark.parametrize(
    ("allowed", "host", "port", "address"),
    [
        ("intranet:8080", "intranet", 80, "10.1.2.3"),
        ("intranet:8080", "other", 8080, "10.1.2.3"),
        ("intranet:8080", "intranet", 8080, "169.254.169.254"),
        ("intranet:8080", "intranet", 8080, "0.0.0.1"),
        ("intranet:8080", "intranet", 8080, "::ffff:10.1.2.3"),
        ("intranet:8080", "intranet", 8080, "64:ff9b::10.1.2.3"),
        ("intranet:8080", "intranet", 8080, "224.0.0.1"),
        ("10.1.0.0/16", "anything.example", 80, "10.2.0.1"),
        ("10.1.0.0/16", "anything.example", 80, "::ffff:10.1.0.1"),
        ("127.0.0.0/8", "anything.example", 80, "2002:7f00:1::"),
    ],
)
def test_allowing_one_place_allows_no_other(allowed: str, host: str, port: int, address: str) -> None:
    """Not another port or host, no metadata service, and no detour to the same machine."""
    with pytest.raises(PermissionDenied, match="not a public address"):
        rules(allowed).vet_addresses(host, port, [address])


def test_one_bad_address_spoils_the_host() -> None:
    """A name with a public and a private address isn't reached at either."""
    with pytest.raises(PermissionDenied, match=r"two\.example \(10\.0\.0\.1\)"):
        rules().vet_addresses("two.example", 80, ["1.1.1.1", "10.0.0.1"])


@pytest.mark.parametrize("port", [22, 25, 6379, 8080, 8265])
def test_other_port_is_denied(port: int) -> None:
    """REL-L47: whatever the address, until the owner names it."""
    address = parse_address(f"http://1.1.1.1:{port}/")
    with pytest.raises(PermissionDenied, match=f"port {port} is not allowed"):
        rules().check_place(address)
    rules(f"1.1.1.1:{port}").check_place(address)


@pytest.mark.covers("REL-L47")
@pytest.mark.parametrize("port", [22, 6379, 8265, 10001, 0, 70000])
def test_port_of_another_protocol_is_no_setting(port: int) -> None:
    """It can be allowed host by host, and the error says how."""
    with pytest.raises(ConfigError, match="port"):
        WebSettings(ports=(80, port))


def test_own_engine_and_metadata_ports_are_foreign() -> None:
    """Ray's, etcd's, Kubernetes' and Docker's ports are on the list."""
    assert {6379, 8265, 10001, 2379, 6443, 10250, 2375, 11211, 9200} <= FOREIGN_PORTS
    assert not FOREIGN_PORTS & {80, 443, 8080, 8443}


@pytest.mark.parametrize(
    "entry", ["intranet", "10.0.0.0/8x", "host:", ":80", "host:99999", "10.0.0.1/8", "h:８０"]
)
def test_entry_that_names_no_place_is_refused_at_once(entry: str) -> None:
    """Before any session exists."""
    with pytest.raises(ConfigError):
        WebSettings(allow_private=(entry,))


def test_host_that_is_none_is_refused_before_anything_is_fetched() -> None:
    """What only the normaliser can tell is reported when the web is made."""
    with pytest.raises(ConfigError, match="allow_private"):
        OutboundWeb(WebSettings(allow_private=("a..b:80",)))
    with pytest.raises(ConfigError, match="search_url"):
        OutboundWeb(WebSettings(search_url="file:///etc/passwd"))
