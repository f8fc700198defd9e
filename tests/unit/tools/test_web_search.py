"""What a model sees of a search."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.handles.ports import SearchHit, SearchQuery
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.testing.context import call_tool, make_context
from sessiontree_tools.web.web import WebSearch
from tests.unit.tools.web_fakes import FixedWeb

HITS = (
    SearchHit("First", "http://one.example/", "What one says."),
    SearchHit("", "http://two.example/", ""),
)


@pytest.mark.parametrize("kind", list(SessionKind))
async def test_hits_are_listed_and_marked(tmp_path: Path, kind: SessionKind) -> None:
    """Title, address and snippet; a hit without a title has its address."""
    result = await call_tool(WebSearch(), make_context(tmp_path, kind, web=FixedWeb(hits=HITS)), query="a b")
    lines = result.text_for_model().splitlines()
    assert re.fullmatch(
        r'<<<EXTERNAL_UNTRUSTED_CONTENT id="[0-9a-f]{16}" kind="web search" source="a b">>>', lines[0]
    )
    assert lines[2:-1] == [
        *("1. First", "http://one.example/", "What one says.", ""),
        *("2. http://two.example/", "http://two.example/"),
    ]
    assert result.details == {
        "query": "a b",
        "hits": [
            {"title": "First", "url": "http://one.example/"},
            {"title": "", "url": "http://two.example/"},
        ],
    }


async def test_query_reaches_the_provider(tmp_path: Path) -> None:
    """Letters of country and language in their usual case."""
    web = FixedWeb(hits=HITS)
    ctx = make_context(tmp_path, web=web)
    await call_tool(WebSearch(), ctx, query="q")
    await call_tool(WebSearch(), ctx, query="q", count=10, country="at", language="DE", freshness="year")
    assert web.searched == [SearchQuery("q", 5), SearchQuery("q", 10, "AT", "de", "year")]


async def test_nothing_found_is_told(tmp_path: Path) -> None:
    """And what to do about it."""
    result = await call_tool(WebSearch(), make_context(tmp_path, web=FixedWeb()), query="q")
    assert "no page was found" in result.text_for_model()


async def test_marks_survive_the_agents_own_limit(tmp_path: Path) -> None:
    """Hits are cut, the end mark is not."""
    hits = tuple(SearchHit("t" * 300, f"http://{number}.example/", "s" * 1000) for number in range(10))
    config = AgentConfig(max_result_chars=3000)
    ctx = make_context(tmp_path, web=FixedWeb(hits=hits), config=config)
    text = (await call_tool(WebSearch(), ctx, query="q", count=10)).text_for_model()
    assert len(text) <= config.max_result_chars
    assert text.splitlines()[-1].startswith("<<<END_EXTERNAL_UNTRUSTED_CONTENT")


@pytest.mark.parametrize(
    "arguments",
    [
        {"count": 0},
        {"count": 11},
        {"country": "USA"},
        {"language": "e"},
        {"freshness": "pd"},
        {"query": "x" * 401},
    ],
)
async def test_arguments_are_checked(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Bounds of the schema; nothing is asked."""
    web = FixedWeb(hits=HITS)
    with pytest.raises(ValidationError):
        await call_tool(WebSearch(), make_context(tmp_path, web=web), **{"query": "q", **arguments})
    assert web.searched == []
