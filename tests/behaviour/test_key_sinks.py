"""Keys of every shape whose provider repeats them in its failures: a tree brings none to light."""

from __future__ import annotations

import asyncio
import logging
import traceback
from pathlib import Path

import pytest

from sessiontree import AgentConfig, AgentSpec, FunctionModel, ProviderModel, SessionFailed, StoredTrees
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider, FakeRequest
from tests.behaviour.fact_fixtures import PATIENCE_S, records
from tests.behaviour.tree_fixtures import Opener
from tests.unit.models.key_fixtures import KEYS, echo, shows

LONG_ENOUGH = {shape: key for shape, key in KEYS.items() if len(key) > 2}
"""Shorter texts are found by chance."""


async def test_key_that_a_provider_repeats_gets_nowhere(
    open_tree: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not into the journal, an export, errors, results, events, logs, the transcript, ``status`` or ``repr``.

    Every second provider refuses the question, the others the reply; both of them repeat the key.
    """
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    asked: list[str] = []

    def answer(request: FakeRequest) -> FakeReply:
        key = request.headers["authorization"].removeprefix("Bearer ")
        asked.append(key)
        return FakeReply(refusal=echo(key)) if len(asked) % 2 else FakeReply(status=401, error=echo(key))

    async with FakeProvider(answer) as fake:
        models = {
            shape: ProviderModel("openai:m", api_key=key, base_url=fake.url("openai"))
            for shape, key in LONG_ENOUGH.items()
        }
        agents = {shape: AgentSpec(config=AgentConfig(model=shape)) for shape in LONG_ENOUGH}
        async with open_tree(FunctionModel(lambda request: "seen"), models=models, agents=agents) as tree:
            reader = tree.progress()
            for shape in LONG_ENOUGH:
                child = await tree.main.spawn("branch", "go", agent=shape)
                async with asyncio.timeout(PATIENCE_S):
                    result = await child.result()
                seen += [repr(result), repr(child), repr(child.status()), repr(child.history())]
                assert "bad key" in str(result) or len(LONG_ENOUGH[shape]) > 1_000, shape
            assert await tree.main.send("How was it?") == "seen"
            await reader.catch_up()
            seen += [repr(each) for each in reader.drain()]
            seen += [repr(each) for each in (tree, tree.main, tree.main.history(), tree.main.status())]
            seen += [record.text for record in await records(tree)]
            await StoredTrees(tree.state_dir).export(tree.tree_id, tmp_path / "export.ndjson")
            seen.append((tmp_path / "export.ndjson").read_text("utf-8"))
            reader.close()
    assert sorted(asked) == sorted(LONG_ENOUGH.values())
    seen.append(caplog.text)
    found = {shape: text for shape, key in LONG_ENOUGH.items() for text in seen if shows(text, key)}
    assert found == {}


@pytest.mark.parametrize("shape", ["OpenAI key", "both quotes", "of an address"])
async def test_error_of_a_send_holds_no_key(open_tree: Opener, shape: str) -> None:
    """Nor does its traceback, with everything that is attached to it."""
    key = KEYS[shape]
    async with FakeProvider([FakeReply(status=401, error=echo(key))]) as fake:
        model = ProviderModel("openai:m", api_key=key, base_url=fake.url("openai"))
        async with open_tree(model) as tree:
            with pytest.raises(SessionFailed, match="bad key") as caught:
                await tree.main.send("Hi.")
    assert not shows("".join(traceback.format_exception(caught.value)), key)
