"""Web addresses: how a URL is parsed, and which IP addresses are not part of the public internet.

A URL that programs parse differently is refused, because two meanings of one URL could bypass checks.
Addresses inside other addresses (NAT64, 6to4, Teredo, ISATAP) are found.
Source of the normal form of a URL: the WHATWG URL Standard for hosts (old spellings of IPv4, domain to
ASCII), where it agrees with RFC 3986.
Sources of the ranges: IANA IPv4 and IPv6 Special-Purpose Address Registries, IANA IPv6 Address Space
registry; RFC 6052 (NAT64), RFC 8215 (local NAT64), RFC 3056 (6to4), RFC 4380 (Teredo), RFC 5214 (ISATAP), RFC
6890; cloud providers' documents for the addresses of their metadata services. Ranges that a registry calls
reachable but that do not name hosts (protocol assignments, relays) are refused as well.
Not here: which of them the owner allows (``client.py``).
"""

from __future__ import annotations

import re
from dataclasses import field
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, Literal, TypeAlias
from urllib.parse import quote, urljoin, urlsplit

import idna

from sessiontree.contracts.errors import PermissionDenied, ValidationError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.values.quick_dataclass import dataclass

Ip: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Sort: TypeAlias = Literal["local", "never"]
"""``local``: a machine or network of the owner, which may be allowed by name; ``never``: not a host, or one
that gives out credentials."""


@dataclass(frozen=True, slots=True)
class Range:
    """Addresses that are not public, and why."""

    network: Network
    reason: str
    sort: Sort = "never"


def _parse_ranges(*rows: tuple[str, str, Sort]) -> tuple[Range, ...]:
    return tuple(
        Range(IPv6Network(text) if ":" in text else IPv4Network(text), reason, sort)
        for text, reason, sort in rows
    )


RANGES_V4: Final = _parse_ranges(
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
RANGES_V6: Final = _parse_ranges(
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


def find_non_public_range(address: Ip) -> Range | None:
    """Return why an address is not that of a public host, or None if it is.

    An IPv4 address inside NAT64 or ISATAP is judged as if it were given directly. All other forms of an
    address inside another one are refused.
    """
    if isinstance(address, IPv4Address):
        return _find_range(RANGES_V4, address)
    number = int(address)
    if address in NAT64:
        return _find_embedded_range(address, IPv4Address(number & 0xFFFFFFFF), "NAT64")
    found = _find_range(RANGES_V6, address)
    if found is not None:
        return found
    # After the table, because its reasons say more; what remains here is reserved for later use.
    if address not in GLOBAL_UNICAST:
        return UNASSIGNED
    if number >> 32 & 0xFFFFFFFF in ISATAP:
        return _find_embedded_range(address, IPv4Address(number & 0xFFFFFFFF), "ISATAP")
    return None


def _find_range(ranges: tuple[Range, ...], address: Ip) -> Range | None:
    return next((row for row in ranges if address in row.network), None)


def _find_embedded_range(outer: IPv6Address, inner: IPv4Address, how: str) -> Range | None:
    found = _find_range(RANGES_V4, inner)
    if found is None:
        return None
    # Never "local": an owner who allows a machine by name does not allow a detour to it.
    return Range(IPv6Network(outer), f"{how} of {inner}: {found.reason}")


MAX_URL_CHARS: Final = 4096
SHOWN_CHARS: Final = 200
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# Browsers read a backslash as a slash and skip line breaks; other parsers do not.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\x9f\\\u2028\u2029]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_OLD_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_PORT = re.compile(r"[0-9]{1,5}")
_KEPT = "!$%&'()*+,-./:;=?@[]_~"
"""Characters that a path or query keeps; the bytes of others, in UTF-8, are written as ``%XX``."""


@dataclass(frozen=True, slots=True)
class WebAddress:
    """One http or https address, normalised: two spellings of one place are equal."""

    scheme: str
    host: str
    """A lower-case ASCII name without trailing dot, or an IP address in its shortest form, no brackets."""
    port: int
    target: str
    """Path and query as they are sent."""
    is_secret: bool = field(default=False, compare=False)
    """Whether path and query may hold a key, so that no error shows them."""

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return self.scheme, self.host, self.port

    @property
    def ip(self) -> Ip | None:
        """The host, if it is an IP address, else None."""
        try:
            return IPv6Address(self.host) if ":" in self.host else IPv4Address(self.host)
        except AddressValueError:
            return None

    @property
    def authority(self) -> str:
        """The host, with the port unless it is the scheme's default; as in a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """The address for errors, shortened because a page chooses the targets of its redirects."""
        text = f"{self.scheme}://{self.authority}" if self.is_secret else str(self)
        return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"

    def __str__(self) -> str:
        """Return the whole address."""
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_address(text: str) -> WebAddress:
    """Return the normal form of an address. A fragment is dropped.

    Raises:
        ValidationError: it is not a web address.
        PermissionDenied: it has another scheme, or it contains credentials.
    """
    url = text.strip(" ")
    if len(url) > MAX_URL_CHARS:
        raise _make_error(f"the address has {len(url)} characters; give one of at most {MAX_URL_CHARS}")
    scheme = _parse_scheme(url)
    spaced = url.replace(" ", "%20")
    if _FORBIDDEN.search(spaced):
        raise _make_error(f"{text!r} holds a control character or a backslash")
    try:
        parts = urlsplit(spaced)
    except ValueError as error:
        raise _make_error(f"{text!r} is not a web address: {error}") from error
    # Parsers disagree about where the host begins if there are several of these signs.
    if "@" in parts.netloc:
        raise make_denial("an address with a user name or password is not fetched; leave them out")
    host, port = _split_host_and_port(parts.netloc, text)
    path = quote(parts.path or "/", safe=_KEPT)
    query = f"?{quote(parts.query, safe=_KEPT)}" if parts.query else ""
    return WebAddress(scheme, host, port or DEFAULT_PORTS[scheme], path + query)


def join_address(place: WebAddress, reference: str) -> WebAddress:
    """Return the target of a reference at an address, such as a redirect; raises as parse_address."""
    if len(reference) > MAX_URL_CHARS or _FORBIDDEN.search(reference.strip(" ").replace(" ", "%20")):
        raise _make_error("the target of a redirect is too long, or holds control characters")
    try:
        return parse_address(urljoin(str(place), reference.strip(" ")))
    except ValueError as error:
        raise _make_error(f"the target of a redirect is not valid: {error}") from error


def normalise_host(host: str) -> str:
    """Return the normal form of a host name or IP address; an IPv6 address is in brackets.

    Raises:
        ValidationError: it is not one of them.
    """
    if host.startswith("["):
        return _parse_ipv6(host)
    if "%" in host or ":" in host:
        raise _make_error(f"{host!r} is not a host name: write it without '%' and ':'")
    name = host.lower()
    if not name.isascii():
        try:
            # Look-alike dots, digits and letters become their compatible characters (UTS #46).
            name = idna.encode(name, uts46=True).decode("ascii").lower()
        except (idna.IDNAError, UnicodeError) as error:
            raise _make_error(f"{host!r} is not a host name: {error}") from error
    name = name.removesuffix(".")
    labels = name.split(".")
    if _OLD_NUMBER.fullmatch(labels[-1]):
        return _parse_old_ipv4(labels, host)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _make_error(f"{host!r} is not a host name")
    return name


def make_denial(reason: str) -> PermissionDenied:
    """Return a refusal to fetch."""
    return PermissionDenied(PermissionTier.READ_ONLY, reason)


def _make_error(message: str) -> ValidationError:
    return ValidationError(message, "/url")


def _parse_scheme(url: str) -> str:
    found = _SCHEME.match(url)
    if found is None:
        raise _make_error(f"{url[:200]!r} is not a web address: begin it with http:// or https://")
    scheme = found[1].lower()
    if scheme not in DEFAULT_PORTS:
        raise make_denial(f"{scheme[:20]}: addresses are not fetched; only http and https are")
    if url[found.end() : found.end() + 2] != "//":
        raise _make_error(f"{url[:200]!r} is not a web address: // must follow {scheme}:")
    return scheme


def _split_host_and_port(netloc: str, text: str) -> tuple[str, int | None]:
    end = netloc.find("]") + 1
    host, colon, digits = netloc[end:].partition(":")
    host = netloc[:end] + host
    if not host:
        raise _make_error(f"{text[:200]!r} names no host")
    if not colon or not digits:
        return normalise_host(host), None
    if not _PORT.fullmatch(digits) or not 0 < int(digits) < 2**16:
        raise _make_error(f"{digits[:20]!r} is not a port; ports are 1 to 65535")
    return normalise_host(host), int(digits)


def _parse_ipv6(host: str) -> str:
    inner = host.removeprefix("[").removesuffix("]")
    if "%" in inner:
        raise make_denial(
            f"{host[:60]!r} has a zone: it is an address on a link of this machine, not on the web"
        )
    try:
        if not host.endswith("]"):
            raise AddressValueError("text after the bracket")
        return str(IPv6Address(inner))
    except AddressValueError as error:
        raise _make_error(f"{host!r} is not an IPv6 address: {error}") from error


def _parse_old_ipv4(labels: list[str], host: str) -> str:
    """Return an IPv4 address as four decimal numbers; it may be given as fewer, in octal or in hex."""
    wrong = _make_error(f"{host!r} is not an IPv4 address")
    if len(labels) > 4 or not all(_OLD_NUMBER.fullmatch(label) for label in labels):
        raise wrong
    numbers = [_parse_old_number(label, wrong) for label in labels]
    if any(number > 255 for number in numbers[:-1]) or numbers[-1] >= 256 ** (5 - len(numbers)):
        raise wrong
    value = numbers[-1] + sum(number << 8 * (3 - at) for at, number in enumerate(numbers[:-1]))
    return str(IPv4Address(value))


def _parse_old_number(label: str, wrong: ValidationError) -> int:
    # `int` of very many digits takes long, and no address has so many.
    if len(label) > 32:
        raise wrong
    try:
        if label[:2].lower() == "0x":
            return int(label[2:] or "0", 16)
        return int(label, 8 if len(label) > 1 and label.startswith("0") else 10)
    except ValueError as error:
        raise wrong from error
