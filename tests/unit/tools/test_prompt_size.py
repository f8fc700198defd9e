"""How much of a model's context the prompt and the tools of a new tree take."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from sessiontree import FunctionModel, ModelRequest, SessionTree

MAX_CHARS = 7_800


async def first_request(tmp_path: Path) -> ModelRequest:
    """Return what the model of a tree with nothing but defaults is asked first."""
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        requests.append(request)
        return "hello"

    (tmp_path / "ground").mkdir()
    model = FunctionModel(answer)
    async with SessionTree(
        tmp_path / "ground", model=model, backend="local", state_dir=tmp_path / "state"
    ) as tree:
        assert await tree.main.send("hello") == "hello"
    return requests[0]


async def test_prompt_and_tools_of_a_hello_are_short(tmp_path: Path) -> None:
    """A plain hello sends at most 7,800 characters of system prompt and tools, written as spaced JSON."""
    request = await first_request(tmp_path)
    assert len(request.system_prompt) + len(json.dumps([asdict(spec) for spec in request.tools])) <= MAX_CHARS


async def test_tools_are_described_once_and_only_where_they_can_be_used(tmp_path: Path) -> None:
    """The prompt names the tools; their schemas describe them. No search provider: no search is offered."""
    request = await first_request(tmp_path)
    assert not [spec.name for spec in request.tools if spec.description in request.system_prompt]
    assert not [spec.name for spec in request.tools if spec.name not in request.system_prompt]
    assert "web_search" not in {spec.name for spec in request.tools}
