"""Who may use the server: a token works once, a cookie is needed, and pages of other sites are refused."""

from __future__ import annotations

import pytest

from sessiontree.serve.access import MAX_OPENED, Access, remove_token

HOST = "127.0.0.1:8787"


@pytest.fixture
def access() -> Access:
    """An access of one host."""
    return Access([HOST])


def test_token_works_once(access: Access) -> None:
    """The cookie that it is worth stays good."""
    token = access.make_token()
    cookie = access.take_token(token)
    assert cookie is not None
    assert access.is_known(cookie)
    assert access.take_token(token) is None


@pytest.mark.parametrize("given", ["", "x", "é" * 32, "\udcff", "a" * 10**6])
def test_nothing_else_works(access: Access, given: str) -> None:
    """Wrong tokens and cookies are refused, however odd; no cookie is known before one was set."""
    access.make_token()
    assert access.take_token(given) is None
    assert not access.is_known(given)
    assert not access.is_known(None)


def test_lasting_token_works_again() -> None:
    """The token of a file lets several browsers in."""
    access = Access([HOST], "https", "t" * 32)
    assert access.make_token() == "t" * 32
    assert access.take_token("t" * 32) != access.take_token("t" * 32) is not None
    assert "Secure" in access.set_cookie("v")


def test_browsers_are_bounded(access: Access) -> None:
    """The one that came first makes room."""
    cookies = [access.take_token(access.make_token()) for _ in range(MAX_OPENED + 1)]
    assert not access.is_known(cookies[0])
    assert all(access.is_known(cookie) for cookie in cookies[1:])


FOREIGN: list[tuple[str, dict[str, str]]] = [
    ("GET", {}),
    ("GET", {"host": "evil.example"}),
    ("GET", {"host": "127.0.0.1:8788"}),
    ("GET", {"host": f"{HOST}.evil.example"}),
    ("GET", {"host": HOST, "origin": "http://evil.example"}),
    ("GET", {"host": HOST, "origin": "null"}),
    ("GET", {"host": HOST, "origin": f"https://{HOST}"}),
    ("GET", {"host": HOST, "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}),
    ("POST", {"host": HOST}),
    ("POST", {"host": HOST, "origin": "http://evil.example"}),
    ("POST", {"host": HOST, "origin": f"http://{HOST}", "sec-fetch-site": "cross-site"}),
    ("POST", {"host": HOST, "origin": f"http://{HOST}", "sec-fetch-site": "same-site"}),
    ("DELETE", {"host": HOST}),
]


@pytest.mark.parametrize(("method", "headers"), FOREIGN)
def test_another_site_is_refused(access: Access, method: str, headers: dict[str, str]) -> None:
    """Whether it has another name, another origin, or makes this browser send a change."""
    assert access.explain_foreign(method, headers)


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {"host": HOST}),
        ("GET", {"host": HOST.upper(), "sec-fetch-site": "none"}),
        ("GET", {"host": HOST, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}),
        ("POST", {"host": HOST, "origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}),
        ("POST", {"host": HOST, "origin": f"http://{HOST}"}),
    ],
)
def test_page_of_its_own_is_let_in(access: Access, method: str, headers: dict[str, str]) -> None:
    """And a link to it, from wherever."""
    assert not access.explain_foreign(method, headers)


def test_page_without_its_token_is_the_same_page() -> None:
    """Other parameters stay, and a path can't lead to another server."""
    assert remove_token("/t/x", "token=abc&a=1") == "/t/x?a=1"
    assert remove_token("//evil.example/", "token=abc") == "/evil.example/"
