"""A session that names ``tts`` speaks into its workspace on every backend."""

from __future__ import annotations

import io
import wave

import pytest

from sessiontree import AgentSpec, ScriptedModel, script_call
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import results
from tests.behaviour.tree_fixtures import Opener


@pytest.mark.covers("S16")
@pytest.mark.slow
@pytest.mark.on_ray
async def test_a_branch_speaks_and_a_worker_does_not(open_tree: Opener) -> None:
    """Without the web, too; a Worker's call finds no such tool, and writes nothing."""
    script: list[Answer] = [script_call("tts", text="good morning", path="said.wav"), "done"]
    agents = {"default": AgentSpec(tools=["tts"])}
    async with open_tree(ScriptedModel(script), agents=agents, web=None) as tree:
        worker = await tree.main.spawn("worker", "speak")
        await worker.result()
        assert not (open_tree.workspace / "said.wav").exists()
        branch = await tree.main.spawn("branch", "speak")
        await branch.result()
        (refused,) = results(tree, worker.session_id)
        (done,) = results(tree, branch.session_id)
    assert refused.is_error
    assert not done.is_error, done.text
    with wave.open(io.BytesIO((open_tree.workspace / "said.wav").read_bytes())) as sound:
        assert sound.getnframes() > sound.getframerate() / 4
