"""REL-L43, REL-L44: connections go to the address that was judged, and nowhere else."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.web.settings import WebSettings
from sessiontree.web.web import OutboundWeb
from tests.unit.web.site_fakes import OTHER, PUBLIC, Detour, Names, answer, local_web, redirect, serving


def public_web(names: Names, detour: Detour, **settings: object) -> OutboundWeb:
    """Return a web of invented names, all of whose connections lead to one server here."""
    return OutboundWeb(WebSettings.model_validate(settings), resolve=names, connector=detour)


@pytest.mark.covers("REL-L43", "WEB2")
async def test_connection_goes_to_the_judged_address_and_the_name_stays() -> None:
    """Resolved once; connected to that very address; the Host header is the name."""
    names = Names(site_example=[[PUBLIC], ["127.0.0.1"]])
    async with serving(answer(b"hello")) as site:
        detour = Detour(site.port)
        page = await public_web(names, detour).get("http://Site.Example./a?b#c")
    assert page.body == b"hello"
    assert page.url == "http://site.example/a?b"
    assert names.asked == ["site.example"]
    assert detour.asked == [(PUBLIC, 80)]
    assert site.requests[0].startswith("GET /a?b HTTP/1.1\r\n")
    assert site.headers()["host"] == "site.example"


@pytest.mark.covers("REL-L43")
async def test_name_that_turns_to_the_loopback_is_refused() -> None:
    """REL-L43: the name server answers public first and loopback then; the second page is refused."""
    names = Names(site_example=[[PUBLIC], ["127.0.0.1"]])
    async with serving(answer(b"hello")) as site:
        detour = Detour(site.port)
        web = public_web(names, detour)
        await web.get("http://site.example/")
        with pytest.raises(PermissionDenied, match=r"site\.example \(127\.0\.0\.1\).*loopback"):
            await web.get("http://site.example/")
    assert detour.asked == [(PUBLIC, 80)]


@pytest.mark.covers("REL-L42")
@pytest.mark.parametrize(
    "found",
    [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["::1"], ["fe80::1%eth0"], ["::ffff:127.0.0.1"], ["nonsense"]],
)
async def test_name_with_an_address_that_is_not_public_is_never_connected_to(found: list[str]) -> None:
    """Neither at that address nor at another one it has."""
    detour = Detour(None)
    with pytest.raises(PermissionDenied):
        await public_web(Names(site_example=[found]), detour).get("http://site.example/")
    assert detour.asked == []


@pytest.mark.covers("REL-L42")
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "0x7f.1", "[::1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "①27.1"]
)
async def test_address_itself_is_judged_without_asking_anybody(host: str) -> None:
    """No resolver is asked about an address, and nothing is connected to."""
    names, detour = Names(), Detour(None)
    with pytest.raises(PermissionDenied):
        await public_web(names, detour).get(f"http://{host}/")
    assert (names.asked, detour.asked) == ([], [])


async def test_next_address_is_tried_where_one_does_not_answer() -> None:
    """In the resolver's order, four at most."""
    async with serving(answer(b"hello")) as site:
        detour = Detour(site.port)
        detour.refusing = {OTHER}
        page = await public_web(Names(site_example=[[OTHER, PUBLIC]]), detour).get("http://site.example/")
    assert page.status == 200
    assert [address for address, _ in detour.asked] == [OTHER, PUBLIC]
    many = [f"1.1.1.{number}" for number in range(1, 10)]
    deaf = Detour(None)
    with pytest.raises(ExecutionError, match="nobody there"):
        await public_web(Names(site_example=[many]), deaf).get("http://site.example/")
    assert [address for address, _ in deaf.asked] == many[:4]


async def test_name_that_is_none_is_told() -> None:
    """The resolver's failure is the model's to read."""
    with pytest.raises(ExecutionError, match=r"'nowhere\.example' can't be resolved"):
        await public_web(Names(), Detour(None)).get("http://nowhere.example/")
    with pytest.raises(ExecutionError, match="has no address"):
        await public_web(Names(empty_example=[[]]), Detour(None)).get("http://empty.example/")


async def test_resolver_that_hangs_is_given_up() -> None:
    """The total time counts from the beginning."""
    hung = asyncio.Event()

    async def resolve(host: str, port: int) -> list[str]:
        await hung.wait()
        return [PUBLIC]

    web = OutboundWeb(WebSettings(total_timeout_s=0.05), resolve=resolve, connector=Detour(None))
    with pytest.raises(ExecutionError, match=r"longer than 0\.05 s"):
        await web.get("http://site.example/")


@pytest.mark.covers("S7", "REL-L45", "WEB2")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("http://127.0.0.1/", "loopback"),
        ("http://0177.1/", "loopback"),
        ("http://169.254.169.254/latest/meta-data/", "metadata"),
        ("//[::ffff:a00:1]/", "mapped"),
        ("http://inner.example/", r"inner\.example \(192\.168\.0\.1\)"),
        ("http://site.example:6379/", "port 6379"),
        ("http://u:p@site.example/", "user name"),
        ("file:///etc/passwd", "only http"),
    ],
)
@pytest.mark.parametrize("hops", [1, 3])
async def test_every_hop_is_judged(target: str, said: str, hops: int) -> None:
    """REL-L45: a redirect leads nowhere that could not be asked for by itself, at any hop."""
    names = Names(site_example=[[PUBLIC]], inner_example=[["192.168.0.1"]])
    left = hops

    async def respond(request: str, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        left -= 1
        await redirect(f"/hop{left}" if left else target)(request, writer)

    async with serving(respond) as site:
        detour = Detour(site.port)
        with pytest.raises(PermissionDenied, match=said):
            await public_web(names, detour).get("http://site.example/")
    assert {address for address, _ in detour.asked} == {PUBLIC}
    assert len(site.requests) == hops


@pytest.mark.covers("REL-L46")
async def test_name_is_judged_again_at_every_hop() -> None:
    """A redirect to the same name is resolved again, and refused once it points inside."""
    names = Names(site_example=[[PUBLIC], ["10.0.0.1"]])
    async with serving(redirect("/again")) as site:
        detour = Detour(site.port)
        with pytest.raises(PermissionDenied, match="private use"):
            await public_web(names, detour).get("http://site.example/")
    assert len(detour.asked) == 1


@pytest.mark.covers("REL-L44")
@pytest.mark.slow
async def test_proxy_of_the_environment_is_not_looked_at() -> None:
    """REL-L44: a process whose environment names proxies for everything asks the server itself."""
    program = (
        "import asyncio, sys\n"
        "from tests.unit.web.site_fakes import Site, local_web\n"
        "site = Site(int(sys.argv[1]))\n"
        "page = asyncio.run(local_web(site).get(site.url))\n"
        "print(page.body.decode())\n"
    )
    async with serving(answer(b"the server itself")) as site, serving(answer(b"the proxy")) as proxy:
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, str(site.port)),
            cwd=Path(__file__).parents[3],
            env={**os.environ, **dict.fromkeys(names, proxy.url), "NO_PROXY": ""},
            stdout=subprocess.PIPE,
        )
        said, _ = await process.communicate()
    assert said == b"the server itself\n"
    assert proxy.requests == []


async def test_only_so_many_pages_are_fetched_at_a_time() -> None:
    """The others wait their turn, within their own time."""
    arrived, go, most, now = asyncio.Semaphore(0), asyncio.Event(), 0, 0

    async def respond(request: str, writer: asyncio.StreamWriter) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        arrived.release()
        await go.wait()
        now -= 1
        await answer(b"done")(request, writer)

    async with serving(respond) as site, asyncio.timeout(60):
        web = local_web(site, max_at_once=2)
        fetching = [asyncio.ensure_future(web.get(site.url)) for _ in range(6)]
        await arrived.acquire()
        await arrived.acquire()
        impatient = asyncio.ensure_future(local_web(site, max_at_once=2).get(site.url))
        await arrived.acquire()  # another web has turns of its own
        go.set()
        pages = [await one for one in [*fetching, impatient]]
    assert {page.status for page in pages} == {200}
    assert most == 3
