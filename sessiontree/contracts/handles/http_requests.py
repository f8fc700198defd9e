"""HTTP requests that may change something: what is sent, what comes back, and the handle that sends them."""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias

from sessiontree.contracts.handles.ports import Page
from sessiontree.contracts.values.quick_dataclass import dataclass

HttpMethod: TypeAlias = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
"""The methods of a request. Source: RFC 9110, section 9, and RFC 5789."""
MAX_SENT_BYTES: Final = 16 * 2**20
"""Maximum size of a request's body."""
MAX_SENT_HEADERS: Final = 40
"""Maximum number of a request's own headers."""
MAX_SENT_HEADER_CHARS: Final = 8192
"""Maximum length of one header's value."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request."""

    url: str
    method: HttpMethod = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    """Its own headers. Those that describe the connection or the length belong to the client."""
    body: bytes = b""
    max_bytes: int | None = None
    """Maximum size of the response's body after decompression; never more than the owner allows."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response to a request."""

    page: Page
    """Final address, status, media type and body."""
    headers: tuple[tuple[str, str], ...]
    """Its headers in order, names in lower case, without cookies."""
    method: HttpMethod
    """The method of the last request: a redirect may turn a POST into a GET."""
    leads_to: str = ""
    """Target of a redirect that was not followed, because it would have repeated the request at another
    origin; empty = none."""


class HttpSender(Protocol):
    """Sends HTTP requests under the owner's address rules.

    No request carries a cookie or a credential of the environment.
    """

    async def request(self, wanted: HttpRequest) -> HttpResponse:
        """Send one request, ``wanted``, and return the response, with any status.

        Redirects are followed hop by hop, each judged as the first address. After status 303, and after 301
        or 302 of a POST, the next request is a GET without body. A redirect to another origin drops the
        request's own headers; if it would repeat a request that is no GET or HEAD there, it is not followed.

        Raises:
            ValidationError: address, header or body is not valid; names the field.
            PermissionDenied: a rule forbids the address, or one that it redirects to.
            ExecutionError: the address can't be reached, takes too long, or its response is not valid. The
                request may have had an effect.
        """
        ...
