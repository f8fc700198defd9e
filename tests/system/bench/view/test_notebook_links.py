"""A run in a notebook: its result and its page, without a token in what is saved."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

import pytest

from sessiontree import ScriptedModel
from sessiontree.bench import Sample, Suite, exact
from sessiontree.bench.view import notebook_links

WRONG = "<script>alert(1)</script>\"'>"


async def solve(attempt: object) -> str:
    """Answer every sample alike."""
    return "1"


async def test_result_links_to_samples_without_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link opens in a browser that was let in by `open_page`, and in no other one."""
    samples = [Sample("right", "1", "1"), Sample(WRONG, "2", "2")]
    results = await Suite("links", samples, solve, exact()).run(
        tmp_path / "run", model=ScriptedModel(["1"]), backend="local"
    )
    monkeypatch.setattr(notebook_links, "is_in_kernel", lambda: True)
    shown = await asyncio.to_thread(results._repr_html_)
    assert "results.open_page()" in shown
    assert "token=" not in shown
    assert "<script" not in shown
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    await asyncio.to_thread(results.open_page)
    (address,) = opened
    origin = address.partition("?")[0]
    assert f"href='{origin}#" in shown

    def ask(url: str) -> int:
        jar = urllib.request.HTTPCookieProcessor()
        try:
            with urllib.request.build_opener(jar).open(url) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert await asyncio.to_thread(ask, origin) in {401, 403}
    assert await asyncio.to_thread(ask, address) == 200
