"""The owner's settings for what a tree may read of the web, and send to it."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final

from pydantic import Field, field_validator

from sessiontree.contracts.settings.settings import StrictSettings

MAX_BODY_BYTES: Final = 16 * 2**20
WEB_PORTS: Final = (80, 443)
FOREIGN_PORTS: Final = frozenset(
    {1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102}
    | {103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 138, 139, 143, 161, 179, 389, 427}
    | {445, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 873}
    | {989, 990, 993, 995, 1433, 1521, 1719, 1720, 1723, 2049, 2375, 2376, 2379, 2380, 3306, 3389, 3659}
    | {4045, 4190, 5060, 5061, 5432, 5900, 6000, 6379, 6443, 6566, 6665, 6666, 6667, 6668, 6669, 6679}
    | {6697, 8265, 9042, 9092, 9200, 10001, 10080, 10250, 11211, 27017}
)
"""Ports of other protocols, of databases and of cluster managers, such as Ray's.

Source: the WHATWG Fetch Standard's bad ports, and the IANA port registry for the others.
"""


class WebSettings(StrictSettings):
    """Limits of what a tree's sessions may read of the web, and send to it. A model cannot change them."""

    allow_private: tuple[str, ...] = ()
    """The owner's places that may be reached although they are not public: ``host:port`` (this host at this
    port, with any private or loopback address) or a network such as ``10.1.0.0/16``."""
    ports: tuple[int, ...] = WEB_PORTS
    """Allowed ports of public hosts; ports of other protocols can only be allowed host by host."""
    max_bytes: int = Field(default=2 * 2**20, ge=1024, le=MAX_BODY_BYTES)
    """The longest body, after decompression; longer ones are cut."""
    max_redirects: int = Field(default=5, ge=0, le=10)
    """How many redirects of one request are followed."""
    connect_timeout_s: float = Field(default=10.0, gt=0, le=60)
    """The longest wait for a connection."""
    read_timeout_s: float = Field(default=15.0, gt=0, le=60)
    """The longest wait for the next bytes."""
    total_timeout_s: float = Field(default=30.0, gt=0, le=110)
    """The time limit for one page, including redirects and the wait for other pages."""
    max_at_once: int = Field(default=4, ge=1, le=64)
    """How many pages one process fetches at a time; others wait."""
    ca_file: Path | None = None
    """Certificates of further authorities, PEM; added to the system's and certifi's."""
    search_url: str | None = Field(default=None, repr=False)
    """The address of a SearXNG, such as ``http://127.0.0.1:8888``; None = the web can't be searched. A key in
    its query is sent with each search; errors show host and port alone."""

    speech_url: str | None = Field(default=None, repr=False)
    """The address of a speech service with OpenAI's endpoint, up to ``/audio/speech``, such as
    ``http://127.0.0.1:8880/v1``; None = espeak-ng speaks, if it is installed."""
    speech_model: str = Field(default="tts-1", min_length=1, max_length=200)
    """The model of that service."""
    speech_voice: str = Field(default="alloy", min_length=1, max_length=100)
    """The voice of calls that name none."""
    speech_key: str | None = Field(default=None, repr=False)
    """The service's key, sent as a bearer token to its address alone; None = it needs none."""

    @field_validator("ports")
    @classmethod
    def _check_ports(cls, ports: tuple[int, ...]) -> tuple[int, ...]:
        for port in ports:
            if not 0 < port < 2**16:
                raise ValueError(f"{port} is not a port; ports are 1 to 65535")
            if port in FOREIGN_PORTS:
                raise ValueError(
                    f"port {port} belongs to another protocol; if a web server of yours listens there, "
                    f"name it: allow_private=('host:{port}',)"
                )
        return ports

    @field_validator("allow_private")
    @classmethod
    def _check_allowed(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        for entry in entries:
            parse_allowed_network(entry) if "/" in entry else parse_allowed_place(entry)
        return entries


PUBLIC_WEB: Final = WebSettings()
"""Public pages only, and no search provider."""


def parse_allowed_network(entry: str) -> IPv4Network | IPv6Network:
    """Return the network that an entry names.

    Raises:
        ValueError: it is not a network, or has bits beyond its prefix.
    """
    return ip_network(entry)


def parse_allowed_place(entry: str) -> tuple[str, int]:
    """Return host and port of an entry; an IPv6 address is in brackets.

    Raises:
        ValueError: it is not ``host:port``.
    """
    host, _, port = entry.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(f"{entry!r} is neither host:port nor a network such as 10.1.0.0/16")
    return host, int(port)
