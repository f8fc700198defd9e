"""Who may use the server: whoever opened it with its one-time token, from a page of its own.

A token in an address stays in histories, so it works once: the answer sets a cookie and leads to the same
page without it. A page of another site can make this browser send requests; ``Origin`` and ``Host`` tell
them apart, and the cookie is not sent along with them. A name that another site resolves to this machine
fails by ``Host``.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

PARAMETER: Final = "token"
"""Name of the parameter of an address that lets a browser in."""
MAX_OPENED: Final = 64
"""Most browsers that are let in at once; the one that came first is forgotten for another one."""
LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")


class Access:
    """Lets in whoever has the token, and afterwards whoever has the cookie.

    Args:
        hosts: Values of ``Host`` that requests may have, such as ``127.0.0.1:8787``.
        scheme: ``http`` or ``https``.
        token: The token of a token file, which works as often as it is used; None = new ones, that work once.
    """

    def __init__(self, hosts: Iterable[str], scheme: str = "http", token: str | None = None) -> None:
        self._hosts = frozenset(hosts)
        self._origins = frozenset(f"{scheme}://{host}" for host in self._hosts)
        self._is_secure = scheme == "https"
        self._lasting = token
        self._once: dict[str, None] = {}
        self._cookies: dict[str, None] = {}
        # cookies are shared by all ports of a machine: a name of its own keeps two servers apart
        self.cookie = f"sessiontree-{secrets.token_hex(4)}"

    def make_token(self) -> str:
        """Return a token that lets one browser in, once; the lasting one where one was given."""
        if self._lasting is not None:
            return self._lasting
        token = secrets.token_urlsafe(24)
        self._once[token] = None
        while len(self._once) > MAX_OPENED:
            del self._once[next(iter(self._once))]
        return token

    def take_token(self, token: str) -> str | None:
        """Use a token up; return the value of the cookie that it is worth, or None."""
        # Compared in constant time: the delay of an answer must not tell how much of a token was right.
        for known in tuple(self._once):
            if hmac.compare_digest(known.encode(), token.encode("utf-8", "replace")):
                del self._once[known]
                return self._make_cookie()
        if self._lasting and hmac.compare_digest(self._lasting.encode(), token.encode("utf-8", "replace")):
            return self._make_cookie()
        return None

    def is_known(self, cookie: str | None) -> bool:
        """Whether a cookie is one that was set here."""
        given = (cookie or "").encode("utf-8", "replace")
        return any(hmac.compare_digest(known.encode(), given) for known in self._cookies)

    def explain_foreign(self, method: str, headers: Mapping[str, str]) -> str:
        """Return why a request does not come from a page of this server; empty if it may.

        Args:
            method: The request's method.
            headers: Its headers, by lower-case names.
        """
        host, origin = headers.get("host", ""), headers.get("origin")
        if host.lower() not in self._hosts:
            return f"this server is not {host[:100]!r}; use {' or '.join(sorted(self._hosts))}"
        if origin is not None and origin.lower() not in self._origins:
            return "the request comes from a page of another site"
        site = headers.get("sec-fetch-site", "same-origin")
        # Browsers send Origin with every such request; without it nothing says which page has asked.
        if method not in {"GET", "HEAD"} and (origin is None or site != "same-origin"):
            return "a change needs an Origin: ask from a page of this server"
        if method in {"GET", "HEAD"} and site == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return "the request comes from a page of another site"
        return ""

    def explain_no_program(self, headers: Mapping[str, str]) -> str:
        """Return why a request does not come from a program with a token; empty if it may.

        Browsers say of each request of a page where it comes from, and programs do not.

        Args:
            headers: Its headers, by lower-case names.
        """
        host = headers.get("host", "")
        if host.lower() not in self._hosts:
            return f"this server is not {host[:100]!r}; use {' or '.join(sorted(self._hosts))}"
        if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
            return "the request comes from a page; only programs ask here"
        return ""

    def set_cookie(self, value: str) -> str:
        """Return the header that sets the cookie for this browser's session."""
        secure = "; Secure" if self._is_secure else ""
        return f"{self.cookie}={value}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def _make_cookie(self) -> str:
        value = secrets.token_urlsafe(32)
        self._cookies[value] = None
        # A lasting token makes a cookie each time it is used, so their number needs a bound.
        while len(self._cookies) > MAX_OPENED:
            del self._cookies[next(iter(self._cookies))]
        return value


def remove_token(path: str, query: str) -> str:
    """Return the address of the same page without the token."""
    rest = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name != PARAMETER]
    # two slashes would begin the address of another server
    return "/" + path.lstrip("/") + (f"?{urlencode(rest)}" if rest else "")
