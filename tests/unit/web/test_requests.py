"""Requests that change something: what is sent, where redirects take them, and what stays behind."""

from __future__ import annotations

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.handles.http_requests import MAX_SENT_BYTES, HttpMethod, HttpRequest
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.web.settings import WebSettings
from sessiontree.web.web import OutboundWeb
from tests.unit.web.service_fakes import Reply, Service, service

KEY = ("X-Key", "k-1")


def web_of(*services: Service, **settings: object) -> OutboundWeb:
    """Return a web in which these services may be reached."""
    allowed = tuple(f"127.0.0.1:{each.port}" for each in services)
    return OutboundWeb(WebSettings.model_validate({"allow_private": allowed, **settings}))


@pytest.mark.covers("A8")
async def test_request_arrives_as_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method, own headers and body; nothing of the environment, and no proxy of it."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with service({"/a?b=1": Reply(201, b"made", ("Set-Cookie: s=1", "X-Id: 7"))}) as there:
        wanted = HttpRequest(f"{there.url}/a?b=1", "PUT", (KEY, ("accept", "text/x")), b"\x00\xff")
        answer = await web_of(there).request(wanted)
    (got,) = there.received
    assert (got.method, got.path, got.body) == ("PUT", "/a?b=1", b"\x00\xff")
    assert {name for name in got.headers if name} == {
        *("host", "accept", "accept-encoding", "user-agent", "connection", "content-length", "x-key")
    }
    assert (got.headers["x-key"], got.headers["accept"]) == ("k-1", "text/x")
    assert (answer.page.status, answer.page.body, answer.method) == (201, b"made", "PUT")
    assert ("x-id", "7") in answer.headers
    assert "set-cookie" not in dict(answer.headers)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD"])
async def test_redirects_follow_the_rfc(method: HttpMethod, status: int, elsewhere: bool) -> None:
    """GET after 303, and after 301 or 302 of a POST; nothing that changes is repeated at another origin."""
    body = b"payload" if method in {"POST", "PUT"} else b""
    becomes_get = (status == 303 and method != "HEAD") or (status in {301, 302} and method == "POST")
    async with service() as second:
        target = f"{second.url}/y" if elsewhere else "/y"
        async with service({"/x": Reply(status, b"see", (f"Location: {target}",))}) as first:
            headers = (KEY, ("Content-Type", "text/x"))
            wanted = HttpRequest(f"{first.url}/x", method, headers, body)
            answer = await web_of(first, second).request(wanted)
    arrived = [*first.received, *second.received]
    if elsewhere and not becomes_get and method != "HEAD":
        assert [(got.method, got.path) for got in arrived] == [(method, "/x")]
        assert (answer.page.status, answer.leads_to) == (status, f"{second.url}/y")
        return
    begun, followed = arrived
    assert (begun.method, begun.body) == (method, body)
    assert followed.method == answer.method == ("GET" if becomes_get else method)
    assert followed.body == (b"" if becomes_get else body)
    assert followed.headers.get("x-key") == (None if elsewhere else "k-1")
    assert ("content-type" in followed.headers) is not (elsewhere or becomes_get)
    assert answer.page.redirects == (f"{first.url}/x",)
    assert answer.leads_to == ""


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([("Host", "a.b")], "set by the client"),
        ([("Content-Length", "1")], "set by the client"),
        ([("transfer-encoding", "chunked")], "set by the client"),
        ([("Proxy-Authorization", "x")], "set by the client"),
        ([("Cookie", "a=1")], "set by the client"),
        ([("A b", "x")], "not the name"),
        ([("", "x")], "not the name"),
        ([("A\r\nB", "x")], "not the name"),
        ([("A", "x\r\nB: y")], "printable ASCII"),
        ([("A", "\ud800")], "printable ASCII"),
        ([("A", "x"), ("a", "y")], "twice"),
        ([("A", "x" * 9000)], "more than 8192"),
        ([(f"A{at}", "x") for at in range(41)], "at most 40"),
    ],
)
async def test_headers_that_are_not_its_own_are_refused(headers: list[tuple[str, str]], why: str) -> None:
    """Before anything is sent; no header ends in another one."""
    async with service() as there:
        with pytest.raises(ValidationError, match=why) as raised:
            await web_of(there).request(HttpRequest(there.url, "POST", tuple(headers)))
    assert raised.value.field == "/headers"
    assert there.received == []


@pytest.mark.covers("A8")
async def test_no_request_leaves_the_owners_rules() -> None:
    """A private address is refused at once and behind a redirect, and both bodies are bounded."""
    async with service() as closed, service({"/x": Reply(302, b"", (f"Location: {closed.url}/",))}) as there:
        for url, begins in ((closed.url, "127"), (f"{there.url}/x", "a redirect")):
            with pytest.raises(PermissionDenied) as refused:
                await web_of(there).request(HttpRequest(url, "POST", body=b"x"))
            assert refused.value.message.startswith(begins)
            assert refused.value.tier is PermissionTier.SYSTEM
        with pytest.raises(ValidationError, match="at most") as raised:
            await web_of(there).request(HttpRequest(there.url, "POST", body=bytes(MAX_SENT_BYTES + 1)))
    assert raised.value.field == "/body"
    assert closed.received == []
    async with service({"/long": Reply(body=b"x" * 5000)}) as there:
        answer = await web_of(there, max_bytes=1024).request(HttpRequest(f"{there.url}/long", "POST"))
        assert (len(answer.page.body), answer.page.truncated) == (1024, True)
        assert there.received[0].headers["content-length"] == "0"


async def test_what_changes_is_never_called_worth_a_retry() -> None:
    """A service that hangs up may have acted already."""
    async with service() as there:
        port = there.port
    web = OutboundWeb(WebSettings(allow_private=(f"127.0.0.1:{port}",)))
    errors: dict[str, ExecutionError] = {}
    methods: tuple[HttpMethod, ...] = ("GET", "POST")
    for method in methods:
        with pytest.raises(ExecutionError) as raised:
            await web.request(HttpRequest(f"http://127.0.0.1:{port}/", method))
        errors[method] = raised.value
    assert {method: error.retryable for method, error in errors.items()} == {"GET": True, "POST": False}
