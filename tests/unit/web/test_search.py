"""Asking the owner's search provider, and remembering its answers for a while."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from sessiontree.contracts.errors import ConfigError, ExecutionError, PermissionDenied
from sessiontree.contracts.handles.ports import SearchHit, SearchQuery
from sessiontree.web.settings import WebSettings
from sessiontree.web.web import KEPT_QUERIES, KEPT_S, MAX_SNIPPET_CHARS, OutboundWeb, SearchCache
from tests.unit.web.site_fakes import Respond, Site, answer, redirect, serving

ROWS = [
    {"title": " One\n page ", "url": "https://one.example/", "content": "About  one. " + "x" * 2000},
    {"title": "", "url": "https://two.example/", "content": None},
    {"title": "Again", "url": "https://one.example/", "content": "twice"},
    {"title": "Script", "url": "javascript:alert(1)", "content": ""},
    {"url": 7},
    [],
    {"title": "Three", "url": "http://three.example/", "content": "three"},
    {"title": "Four", "url": "http://four.example/", "content": "four"},
]


def found(rows: object) -> Respond:
    """Return what answers every search with these results."""
    body = json.dumps({"query": "x", "number_of_results": 0, "results": rows}).encode()
    return answer(body, content_type="application/json")


def searching(site: Site, path: str = "") -> OutboundWeb:
    """Return a web whose provider is a server here."""
    return OutboundWeb(WebSettings(search_url=site.url + path))


async def test_hits_are_those_of_the_provider() -> None:
    """In its order, one line each, none twice, none without a web address, no more than wanted."""
    async with serving(found(ROWS)) as site:
        hits = await searching(site).search(SearchQuery("x", 3))
    assert [hit.url for hit in hits] == [
        "https://one.example/",
        "https://two.example/",
        "http://three.example/",
    ]
    assert hits[0].title == "One page"
    assert hits[0].snippet.startswith("About one. xxx")
    assert len(hits[0].snippet) == MAX_SNIPPET_CHARS
    assert hits[1] == SearchHit("", "https://two.example/", "")


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        (SearchQuery("a&b=c #ü", 5), {"q": "a&b=c #ü", "format": "json"}),
        (SearchQuery("x", 5, country="US"), {"q": "x", "format": "json"}),
        (SearchQuery("x", 5, language="de"), {"q": "x", "format": "json", "language": "de"}),
        (SearchQuery("x", 5, country="at", language="de"), {"q": "x", "format": "json", "language": "de-AT"}),
        (SearchQuery("x", 5, freshness="week"), {"q": "x", "format": "json", "time_range": "week"}),
    ],
)
async def test_query_is_put_as_the_provider_knows_it(query: SearchQuery, asked: dict[str, str]) -> None:
    """Below the path it is configured with."""
    async with serving(found([])) as site:
        assert await searching(site, "/searx/").search(query) == ()
    target = urlsplit(site.requests[0].split(" ")[1])
    assert target.path == "/searx/search"
    assert parse_qs(target.query) == {name: [value] for name, value in asked.items()}


@pytest.mark.parametrize(
    ("respond", "said"),
    [
        (answer(b"<html>", status=403), "search.formats"),
        (answer(b"", status=429), "status 429"),
        (answer(b"<html>"), "not a list of results"),
        (answer(b"[]"), "not a list of results"),
        (answer(b'{"results": {"a": 1}}'), "not a list of results"),
        (answer(b'{"results": 7}'), "not a list of results"),
        (answer(b"[" * 100_000), "not a list of results"),
    ],
)
async def test_failing_provider_is_told(respond: Respond, said: str) -> None:
    """Each says what the owner, or the model, can do about it; none is remembered."""
    async with serving(respond) as site:
        web = searching(site)
        for _ in range(2):
            with pytest.raises(ExecutionError, match=said):
                await web.search(SearchQuery("x", 5))
    assert len(site.requests) == 2


async def test_provider_leads_nowhere_else() -> None:
    """Its redirects are not followed, and being the provider allows no page of it to be fetched."""
    async with serving(found([])) as other, serving(redirect(f"{other.url}/search")) as site:
        web = searching(site)
        with pytest.raises(ExecutionError, match="more than 0 redirects"):
            await web.search(SearchQuery("x", 5))
        with pytest.raises(PermissionDenied):
            await web.get(site.url)
    assert other.requests == []


async def test_without_a_provider_the_error_says_how_to_name_one() -> None:
    """It is the owner's to configure."""
    with pytest.raises(ExecutionError, match=r"WebSettings\(search_url="):
        await OutboundWeb(WebSettings()).search(SearchQuery("x", 5))


class Counting:
    """A provider that counts, and can be made to wait."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        self.asked.append(query.text)
        await asyncio.sleep(0)
        return (SearchHit(f"{query.text} {len(self.asked)}", "http://a.b/", ""),)


async def test_answer_is_remembered_for_a_quarter_of_an_hour() -> None:
    """By the whole query; afterwards the provider is asked again."""
    now_s, provider = 0.0, Counting()
    cache = SearchCache(provider, lambda: now_s)
    first = await cache.search(SearchQuery("x", 5))
    now_s = KEPT_S - 1
    assert await cache.search(SearchQuery("x", 5)) == first
    await cache.search(SearchQuery("x", 6))
    assert provider.asked == ["x", "x"]
    now_s = KEPT_S
    assert await cache.search(SearchQuery("x", 5)) != first
    assert len(provider.asked) == 3


async def test_least_used_answer_is_forgotten_first() -> None:
    """A hundred are kept."""
    provider = Counting()
    cache = SearchCache(provider, lambda: 0.0)
    for number in range(KEPT_QUERIES):
        await cache.search(SearchQuery(str(number), 5))
    await cache.search(SearchQuery("0", 5))
    await cache.search(SearchQuery("new", 5))
    provider.asked.clear()
    await cache.search(SearchQuery("0", 5))
    await cache.search(SearchQuery("1", 5))
    assert provider.asked == ["1"]


async def test_key_of_the_provider_is_in_no_error() -> None:
    """It is sent with each search; errors show host and port alone, also of what it redirects to."""
    async with serving(found(ROWS)) as site:
        await searching(site, "/deep/?key=SECRET&x=1").search(SearchQuery("a b", 3))
    asked = urlsplit(site.requests[0].split(" ")[1])
    assert asked.path == "/deep/search"
    assert parse_qs(asked.query) == {"key": ["SECRET"], "x": ["1"], "q": ["a b"], "format": ["json"]}
    gone = site.url
    answers = (redirect("/elsewhere?key=SECRET"), answer(b"x", status=500), answer(b"no", status=403))
    said = []
    for respond in answers:
        async with serving(respond) as site:
            with pytest.raises((ExecutionError, PermissionDenied)) as caught:
                await searching(site, "/SECRET?key=SECRET").search(SearchQuery("x", 3))
            said.append(f"{caught.value} {caught.value!r} {caught.value.message}")
    with pytest.raises(ExecutionError) as caught:
        await OutboundWeb(WebSettings(search_url=f"{gone}/?key=SECRET")).search(SearchQuery("x", 3))
    said.append(f"{caught.value} {caught.value!r}")
    for url in (
        "http://user:SECRET@h/",
        "ftp://h/?key=SECRET",
        "http://h\\SECRET/",
        "http://h:99999/?SECRET",
    ):
        with pytest.raises(ConfigError) as refused:
            OutboundWeb(WebSettings(search_url=url))
        said.append(f"{refused.value} {refused.value!r}")
    said.append(repr(WebSettings(search_url="http://h/?key=SECRET")))
    assert [text for text in said if "SECRET" in text] == []
