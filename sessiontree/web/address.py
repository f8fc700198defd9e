"""Web addresses in their one form: what is checked is what is connected to, and what is sent.

Source: the WHATWG URL Standard for hosts (IPv4 in its old spellings, domain to ASCII) where it agrees with
RFC 3986; what the two read differently is refused instead of guessed.
Not here: whether an address may be reached (rules.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

import idna

from sessiontree.contracts.errors import PermissionDenied, ValidationError
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.web.ranges import Ip

MAX_URL_CHARS: Final = 4096
SHOWN_CHARS: Final = 200
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\x9f\\\u2028\u2029]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_OLD_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_PORT = re.compile(r"[0-9]{1,5}")
_KEPT = "!$%&'()*+,-./:;=?@[]_~"
"""What a path or query keeps as it stands; the rest is written as ``%XX``, of its UTF-8."""


@dataclass(frozen=True, slots=True)
class WebAddress:
    """One http or https address, normalised: two spellings of one place are equal."""

    scheme: str
    host: str
    """A small-letter ASCII name without trailing dot, or an IP address in its shortest form, no brackets."""
    port: int
    target: str
    """Path and query as they are sent."""

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return self.scheme, self.host, self.port

    @property
    def ip(self) -> Ip | None:
        """The host, where it is an IP address."""
        try:
            return IPv6Address(self.host) if ":" in self.host else IPv4Address(self.host)
        except AddressValueError:
            return None

    @property
    def authority(self) -> str:
        """Host and, where it is not the scheme's own, port; as in a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """The address as errors name it: a page chooses where it leads on to, so it is kept short."""
        text = str(self)
        return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"

    def __str__(self) -> str:
        """Return the whole address."""
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_address(text: str) -> WebAddress:
    """Return the one form of an address. A fragment is dropped.

    Raises:
        ValidationError: it is no web address.
        PermissionDenied: it is one that is never fetched: another scheme, or with credentials inside.
    """
    url = text.strip(" ")
    if len(url) > MAX_URL_CHARS:
        raise _invalid(f"an address of {len(url)} characters is too long; at most {MAX_URL_CHARS}")
    scheme = _scheme_of(url)
    spaced = url.replace(" ", "%20")
    if _FORBIDDEN.search(spaced):
        raise _invalid(f"{text!r} holds a control character or a backslash")
    try:
        parts = urlsplit(spaced)
    except ValueError as error:
        raise _invalid(f"{text!r} is no web address: {error}") from error
    if "@" in parts.netloc:
        raise denied("an address with a user name or password is not fetched; leave them out")
    host, port = _host_and_port(parts.netloc, text)
    path = quote(parts.path or "/", safe=_KEPT)
    query = f"?{quote(parts.query, safe=_KEPT)}" if parts.query else ""
    return WebAddress(scheme, host, port or DEFAULT_PORTS[scheme], path + query)


def join_address(place: WebAddress, reference: str) -> WebAddress:
    """Return where a reference found at a place leads to, such as a redirect's; raises as parse_address."""
    if len(reference) > MAX_URL_CHARS or _FORBIDDEN.search(reference.strip(" ").replace(" ", "%20")):
        raise _invalid("the address it redirects to is too long, or holds control characters")
    try:
        return parse_address(urljoin(str(place), reference.strip(" ")))
    except ValueError as error:
        raise _invalid(f"the address it redirects to is none: {error}") from error


def normal_host(host: str) -> str:
    """Return the one form of a host name or IP address; an IPv6 address stands in brackets.

    Raises:
        ValidationError: it is neither.
    """
    if host.startswith("["):
        return _ipv6(host)
    if "%" in host or ":" in host:
        raise _invalid(f"{host!r} is no host: write it without '%' and ':'")
    name = host.lower()
    if not name.isascii():
        try:
            # Look-alike dots, digits and letters become what they are compatible with (UTS #46).
            name = idna.encode(name, uts46=True).decode("ascii").lower()
        except (idna.IDNAError, UnicodeError) as error:
            raise _invalid(f"{host!r} is no host name: {error}") from error
    name = name.removesuffix(".")
    labels = name.split(".")
    if _OLD_NUMBER.fullmatch(labels[-1]):
        return _old_ipv4(labels, host)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _invalid(f"{host!r} is no host name")
    return name


def denied(reason: str) -> PermissionDenied:
    """Return a refusal to fetch."""
    return PermissionDenied(PermissionTier.READ_ONLY, reason)


def _invalid(message: str) -> ValidationError:
    return ValidationError(message, "/url")


def _scheme_of(url: str) -> str:
    found = _SCHEME.match(url)
    if found is None:
        raise _invalid(f"{url[:200]!r} is no web address: it begins with neither http:// nor https://")
    scheme = found[1].lower()
    if scheme not in DEFAULT_PORTS:
        raise denied(f"{scheme[:20]}: addresses are not fetched; only http and https are")
    if url[found.end() : found.end() + 2] != "//":
        raise _invalid(f"{url[:200]!r} is no web address: {scheme}: is not followed by //")
    return scheme


def _host_and_port(netloc: str, text: str) -> tuple[str, int | None]:
    end = netloc.find("]") + 1
    host, colon, digits = netloc[end:].partition(":")
    host = netloc[:end] + host
    if not host:
        raise _invalid(f"{text[:200]!r} names no host")
    if not colon or not digits:
        return normal_host(host), None
    if not _PORT.fullmatch(digits) or not 0 < int(digits) < 2**16:
        raise _invalid(f"{digits[:20]!r} is no port; ports are 1 to 65535")
    return normal_host(host), int(digits)


def _ipv6(host: str) -> str:
    inner = host.removeprefix("[").removesuffix("]")
    if "%" in inner:
        raise denied(
            f"{host[:60]!r} has a zone: it is an address of this machine's own links, not of the web"
        )
    try:
        if not host.endswith("]"):
            raise AddressValueError("text after the bracket")
        return str(IPv6Address(inner))
    except AddressValueError as error:
        raise _invalid(f"{host!r} is no IPv6 address: {error}") from error


def _old_ipv4(labels: list[str], host: str) -> str:
    """Return an IPv4 address in four decimal numbers; it may come with fewer, and in octal or hex."""
    wrong = _invalid(f"{host!r} is no IPv4 address")
    if len(labels) > 4 or not all(_OLD_NUMBER.fullmatch(label) for label in labels):
        raise wrong
    numbers = [_old_number(label, wrong) for label in labels]
    if any(number > 255 for number in numbers[:-1]) or numbers[-1] >= 256 ** (5 - len(numbers)):
        raise wrong
    value = numbers[-1] + sum(number << 8 * (3 - at) for at, number in enumerate(numbers[:-1]))
    return str(IPv4Address(value))


def _old_number(label: str, wrong: ValidationError) -> int:
    if len(label) > 32:
        raise wrong
    try:
        if label[:2].lower() == "0x":
            return int(label[2:] or "0", 16)
        return int(label, 8 if len(label) > 1 and label.startswith("0") else 10)
    except ValueError as error:
        raise wrong from error
