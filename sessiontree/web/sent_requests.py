"""What one request sends: its method, headers and body, and what is left of them after a redirect.

Sources: RFC 9110, sections 5.1 and 5.5 (headers), 8.6 (length) and 15.4 (redirects); the WHATWG Fetch
Standard, forbidden request headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.handles.http_requests import MAX_SENT_HEADER_CHARS, MAX_SENT_HEADERS, HttpMethod
from sessiontree.contracts.values.quick_dataclass import dataclass

BODIED: Final = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose requests say the length of their body even if it is empty. Source: RFC 9110, section 8.6."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """What one request sends to its address."""

    method: HttpMethod = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    """In addition to the client's own, which they replace by name."""
    body: bytes = b""

    @property
    def is_safe(self) -> bool:
        """Whether it asks for no change."""
        return self.method in {"GET", "HEAD"} and not self.body

    def must_become_get(self, status: int) -> bool:
        """Return whether a redirect of this status turns it into a GET.

        Source: RFC 9110, section 15.4: always after 303 (a HEAD stays one), and after 301 or 302 of a POST.
        """
        return (status == 303 and self.method != "HEAD") or (status in {301, 302} and self.method == "POST")

    def may_follow(self, status: int, *, stays: bool) -> bool:
        """Return whether its redirect is followed; ``stays`` = to an address of the same origin."""
        return stays or self.is_safe or self.must_become_get(status)

    def follow_redirect(self, status: int, *, stays: bool) -> SentRequest:
        """Return the request that follows a redirect."""
        # A header of its own may be a credential under any name; only Accept is known to be none.
        kept = tuple(pair for pair in self.headers if stays or pair[0].lower() == "accept")
        if not self.must_become_get(status):
            return replace(self, headers=kept)
        return SentRequest("GET", tuple(pair for pair in kept if not pair[0].lower().startswith("content-")))


_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
CLIENTS: Final = frozenset(
    {"host", "connection", "keep-alive", "content-length", "transfer-encoding", "te", "trailer", "upgrade"}
    | {"expect", "accept-encoding", "content-encoding", "via", "cookie", "cookie2", "http2-settings"}
)
"""Headers of the connection, of the length and of its codings, which the client alone sets, and cookies."""


def check_headers(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the headers of a request, values without the white space around them.

    Raises:
        ValidationError: there are too many, a name appears twice or belongs to the client, or a name or value
            has characters that no header has.
    """
    kept: dict[str, tuple[str, str]] = {}
    for name, given in pairs:
        value = given.strip(" \t")
        lower = name.lower()
        if not _NAME.fullmatch(name):
            raise _make_refusal(f"{name[:100]!r} is not the name of a header")
        if lower in CLIENTS or lower.startswith(("proxy-", "sec-")):
            raise _make_refusal(f"{name!r} is set by the client, or not at all; leave it out")
        if not _VALUE.fullmatch(value):
            raise _make_refusal(f"the value of {name!r} holds more than printable ASCII")
        if len(value) > MAX_SENT_HEADER_CHARS:
            raise _make_refusal(f"the value of {name!r} has more than {MAX_SENT_HEADER_CHARS} characters")
        if lower in kept:
            raise _make_refusal(f"{name!r} appears twice")
        kept[lower] = (name, value)
    if len(kept) > MAX_SENT_HEADERS:
        raise _make_refusal(f"there are {len(kept)} headers; a request has at most {MAX_SENT_HEADERS}")
    return tuple(kept.values())


def _make_refusal(why: str) -> ValidationError:
    return ValidationError(why, "/headers")
