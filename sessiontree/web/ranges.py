"""Which addresses are no part of the public internet: one table, and addresses hidden inside others.

Sources: IANA IPv4 and IPv6 Special-Purpose Address Registries, IANA IPv6 Address Space registry;
RFC 6052 (NAT64), RFC 8215 (local NAT64), RFC 3056 (6to4), RFC 4380 (Teredo), RFC 5214 (ISATAP), RFC 6890;
cloud providers' documents for the addresses of their metadata services. Ranges that a registry calls
reachable but that name no host of their own (protocol assignments, relays) are refused as well.
Not here: who may be reached all the same (rules.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, Literal, TypeAlias

Ip: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Sort: TypeAlias = Literal["local", "never"]
"""``local``: a machine or network of the owner's own, which may be allowed by name; ``never``: no host at
all, or one that gives away credentials."""


@dataclass(frozen=True, slots=True)
class Range:
    """Addresses that are not public, and why."""

    network: Network
    reason: str
    sort: Sort = "never"


def _ranges(*rows: tuple[str, str, Sort]) -> tuple[Range, ...]:
    return tuple(
        Range(IPv6Network(text) if ":" in text else IPv4Network(text), reason, sort)
        for text, reason, sort in rows
    )


RANGES_V4: Final = _ranges(
    ("0.0.0.0/8", "this network, unspecified", "never"),
    ("10.0.0.0/8", "private use", "local"),
    ("100.100.100.200/32", "metadata service", "never"),
    ("100.64.0.0/10", "shared by a carrier's customers", "local"),
    ("127.0.0.0/8", "loopback", "local"),
    ("168.63.129.16/32", "metadata service", "never"),
    ("169.254.0.0/16", "link-local, metadata services", "never"),
    ("172.16.0.0/12", "private use", "local"),
    ("192.0.0.0/24", "protocol assignments, metadata services", "never"),
    ("192.0.2.0/24", "documentation", "never"),
    ("192.31.196.0/24", "AS112 service", "never"),
    ("192.52.193.0/24", "multicast tunnels", "never"),
    ("192.88.99.0/24", "6to4 relay", "never"),
    ("192.168.0.0/16", "private use", "local"),
    ("192.175.48.0/24", "AS112 service", "never"),
    ("198.18.0.0/15", "benchmarking", "never"),
    ("198.51.100.0/24", "documentation", "never"),
    ("203.0.113.0/24", "documentation", "never"),
    ("224.0.0.0/4", "multicast", "never"),
    ("240.0.0.0/4", "reserved, broadcast", "never"),
)
RANGES_V6: Final = _ranges(
    ("::/128", "unspecified", "never"),
    ("::1/128", "loopback", "local"),
    ("::ffff:0:0/96", "IPv4-mapped", "never"),
    ("::ffff:0:0:0/96", "IPv4-translated", "never"),
    ("::/96", "IPv4-compatible", "never"),
    ("64:ff9b:1::/48", "local NAT64", "never"),
    ("100::/8", "discard-only, reserved", "never"),
    ("2001::/32", "Teredo", "never"),
    ("2001::/23", "protocol assignments, benchmarking, ORCHID", "never"),
    ("2001:db8::/32", "documentation", "never"),
    ("2002::/16", "6to4", "never"),
    ("2620:4f:8000::/48", "AS112 service", "never"),
    ("3ffe::/16", "6bone, returned", "never"),
    ("3fff::/20", "documentation", "never"),
    ("5f00::/16", "segment routing", "never"),
    ("fd00:ec2::/32", "metadata service", "never"),
    ("fd20:ce::/32", "metadata service", "never"),
    ("fc00::/7", "unique local", "local"),
    ("fe80::/10", "link-local", "never"),
    ("fec0::/10", "site-local", "never"),
    ("ff00::/8", "multicast", "never"),
)
"""The first that holds an address names it."""

GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
NAT64: Final = IPv6Network("64:ff9b::/96")
UNASSIGNED: Final = Range(IPv6Network("::/0"), "not assigned to hosts")
ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
"""The upper half of an interface id that holds an IPv4 address in its lower half."""


def not_public(address: Ip) -> Range | None:
    """Return why an address is no public host's, or None where it is one.

    An IPv4 address that NAT64 or ISATAP put inside is judged as if it were asked for by itself; all other
    ways to write one inside another are refused whatever it is.
    """
    if isinstance(address, IPv4Address):
        return _first(RANGES_V4, address)
    number = int(address)
    if address in NAT64:
        return _embedded(address, IPv4Address(number & 0xFFFFFFFF), "NAT64")
    found = _first(RANGES_V6, address)
    if found is not None:
        return found
    if address not in GLOBAL_UNICAST:
        return UNASSIGNED
    if number >> 32 & 0xFFFFFFFF in ISATAP:
        return _embedded(address, IPv4Address(number & 0xFFFFFFFF), "ISATAP")
    return None


def _first(ranges: tuple[Range, ...], address: Ip) -> Range | None:
    return next((row for row in ranges if address in row.network), None)


def _embedded(outer: IPv6Address, inner: IPv4Address, how: str) -> Range | None:
    found = _first(RANGES_V4, inner)
    if found is None:
        return None
    # Never "local": whoever allows a machine by name does not mean a detour to it.
    return Range(IPv6Network(outer), f"{how} of {inner}: {found.reason}")
