"""A session that names ``tts`` speaks into its workspace on every backend."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from sessiontree import AgentSpec, ScriptedModel, script_call
from sessiontree.models.answers import Answer
from sessiontree.sandbox import find_speech_program
from tests.behaviour.fact_fixtures import results
from tests.behaviour.tree_fixtures import Opener


@pytest.mark.covers("S16")
@pytest.mark.slow
@pytest.mark.on_ray
async def test_branch_speaks_and_a_worker_does_not(open_tree: Opener) -> None:
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


SILENT = """
import asyncio, sys
from sessiontree import AgentSpec, ScriptedModel, SessionTree, WebSettings, script_call
from sessiontree.runtime.host.outside_handles import can_speak
from sessiontree.web.web import OutboundWeb
from tests.behaviour.fact_fixtures import results

async def main():
    model = ScriptedModel([script_call("tts", text="hello", path="a.wav"), "done"])
    agents = {"default": AgentSpec(tools=["tts"])}
    async with SessionTree(sys.argv[1], model=model, agents=agents, web=None, state_dir=sys.argv[2]) as tree:
        branch = await tree.main.spawn("branch", "speak")
        await branch.result()
        (answer,) = results(tree, branch.session_id)
        print(answer.text)
    print(can_speak(OutboundWeb(WebSettings(speech_url="http://127.0.0.1:9/v1"))))

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.covers("S16")
def test_session_lacks_tts_where_nothing_can_speak(tmp_path: Path) -> None:
    """A session without espeak-ng and speech service does not hold the tool; a service gives it back."""
    program, bwrap = find_speech_program(), shutil.which("bwrap")
    assert bwrap is not None
    without = [] if program is None else ["--ro-bind", "/dev/null", program]
    (tmp_path / "ground").mkdir()
    words = [sys.executable, "-c", SILENT, str(tmp_path / "ground"), str(tmp_path / "state")]
    root = Path(__file__).parents[2]
    command = [bwrap, "--dev-bind", "/", "/", *without, "--die-with-parent", *words]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    refused, served = ended.stdout.splitlines()
    assert "(speech: nothing can speak where its session runs; install espeak-ng" in refused
    assert served == "True"
