"""Commands in containers: who shares one, what it sees, when it ends, and what its loss means."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sessiontree import AgentSpec, ConfigError, ScriptedModel, SessionTree, script_call
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.runtime.supervisor.containers import make_journal_label
from sessiontree.sandbox.containers.container import remove_containers
from sessiontree.sandbox.process_tree import find_process_identity
from tests.behaviour.fact_fixtures import facts_of
from tests.behaviour.tree_fixtures import Opener
from tests.unit.sandbox.container_fixtures import IMAGE, StubEngine, engine

__all__ = ["engine"]


async def call_results(tree: SessionTree, session: str | None = None) -> list[tuple[str, str]]:
    """Return outcome and text of each call."""
    calls = await facts_of(tree, CallResolved, session)
    return [(str(call.outcome), call.message.text) for call in calls]


def commands(*lines: str) -> list[Any]:
    """Return replies that run one command line each, and a last one."""
    return [*([script_call("exec", command=line)] for line in lines), "done"]


@pytest.mark.on_ray
@pytest.mark.covers("S45", "S50")
async def test_tree_shares_a_container_that_sees_its_files_and_ends_with_it(
    open_tree: Opener, engine: StubEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Main and its Branch meet in it; no key reaches it; the receipt counts it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    (open_tree.workspace / "given").write_text("from outside")
    model = ScriptedModel(
        {
            "main": commands("cat given; echo; env; echo $STUB_CONTAINER >name; sleep 1000 & echo $! >pid"),
            "main/b1": [
                [script_call("write", path="by_tool", content="by a tool")],
                *commands("cat by_tool; echo; echo $STUB_CONTAINER; kill -0 $(cat pid) && echo alive"),
            ],
        }
    )
    async with open_tree(model, sandbox=engine.spec()) as tree:
        await tree.main.send("go")
        branch = await tree.main.spawn("branch", "look")
        await branch.result()
        (name,) = engine.containers
        ((_, mains),) = await call_results(tree, "main")
        assert mains.startswith("from outside\n")
        assert "sk-secret" not in mains
        assert (open_tree.workspace / "name").read_text() == f"{name}\n"
        assert (await call_results(tree, "main/b1"))[1] == ("ok", f"by a tool\n{name}\nalive\n")
        receipt = {line.session_id: line for line in await tree.finish("over")}
        assert receipt["main"].leftovers >= 1
        assert engine.containers == []
        assert find_process_identity(int((open_tree.workspace / "pid").read_text())) is None


async def test_sessions_have_containers_of_their_own_where_that_is_wanted(
    open_tree: Opener, engine: StubEngine
) -> None:
    """A Branch's ends with the Branch."""
    model = ScriptedModel({"main": commands("true"), "main/b1": commands("true")})
    async with open_tree(model, sandbox=engine.spec(scope="session")) as tree:
        await tree.main.send("go")
        mains = engine.containers
        branch = await tree.main.spawn("branch", "go")
        await branch.result()
        await branch.cancel()
        assert len(engine.asked("run")) == 2
        assert engine.containers == mains


async def test_lost_container_is_reported_once_and_replaced(open_tree: Opener, engine: StubEngine) -> None:
    """What it held is gone, and a failed call says so before the session goes on."""
    spec = engine.spec()
    model = ScriptedModel([*commands("echo one"), *commands("echo two", "echo three")])
    async with open_tree(model, sandbox=spec) as tree:
        await tree.main.send("go")
        assert await remove_containers(spec, {"sessiontree.tree": tree.tree_id}) == 1
        await tree.main.send("go on")
        first, lost, second = await facts_of(tree, CallResolved)
        assert (first.message.text, second.message.text) == ("one\n", "three\n")
        details: Any = lost.message.details
        assert details["code"] == "confinement_unavailable"
        assert "new container" in lost.message.text or "could not run" in lost.message.text
        assert len(engine.asked("run")) == 2


async def test_engine_that_fails_is_no_result_of_a_command(open_tree: Opener, engine: StubEngine) -> None:
    """The failed call says that nothing ran, and why; once the engine works, commands run."""
    (engine.home / "broken").touch()
    model = ScriptedModel([*commands("echo one"), *commands("echo two")])
    async with open_tree(model, sandbox=engine.spec()) as tree:
        await tree.main.send("go")
        (call,) = await facts_of(tree, CallResolved)
        details: Any = call.message.details
        assert details["code"] == "confinement_unavailable"
        assert "can't connect to the engine's service" in call.message.text
        (engine.home / "broken").unlink()
        await tree.main.send("go on")
        assert (await call_results(tree))[1] == ("ok", "two\n")


@pytest.mark.covers("S47")
async def test_files_are_copied_where_they_can_not_be_mounted(open_tree: Opener, engine: StubEngine) -> None:
    """Both ways, with what was removed; protected places and what leads outside stay as they were."""
    workspace = open_tree.workspace
    (workspace / ".git").mkdir()
    (workspace / ".git" / "config").write_text("[core]\n")
    (workspace / "gone").write_text("x")
    (workspace / "sub").mkdir()
    (workspace / "sub" / "kept").write_text("kept")
    lines = (
        "cat sub/kept; rm gone; echo made >new; echo '[alias] a = !x' >>.git/config; ln -s /etc/passwd out",
        "cat new later; ls",
    )
    model = ScriptedModel([*commands(lines[0]), *commands(lines[1])])
    async with open_tree(model, sandbox=engine.spec(files="copy", scope="session")) as tree:
        await tree.main.send("go")
        assert (workspace / "new").read_text() == "made\n"
        assert not (workspace / "gone").exists()
        assert not (workspace / "out").exists()
        assert (workspace / ".git" / "config").read_text() == "[core]\n"
        (workspace / "later").write_text("later\n")
        (workspace / "sub" / "kept").unlink()
        await tree.main.send("go on")
        (_, first), (_, second) = await call_results(tree)
        assert first.startswith("kept")
        assert "put back as it was: .git/config" in first
        assert second.startswith("made\nlater\n")


async def test_empty_workspace_begins_with_the_files_of_the_image(
    open_tree: Opener, engine: StubEngine
) -> None:
    """File tools see them before a command ran; a workspace with files is left alone."""
    app = engine.image("app") / "app"
    app.mkdir()
    (app / "task.txt").write_text("the task")
    spec = engine.spec(image="app", workdir="/app", fill=True)
    model = ScriptedModel([[script_call("read", path="task.txt")], *commands("cat task.txt; pwd")])
    async with open_tree(model, sandbox=spec) as tree:
        await tree.main.send("go")
        (_, read), (_, shown) = await call_results(tree)
        assert "the task" in read
        assert shown == f"the task{open_tree.workspace}\n"
    (open_tree.workspace / "task.txt").write_text("changed")
    async with open_tree(ScriptedModel(commands("cat task.txt")), sandbox=spec) as tree:
        await tree.main.send("go")
        assert await call_results(tree) == [("ok", "changed")]
    assert len(engine.asked("create")) == 1


@pytest.mark.own_runtime
async def test_what_a_killed_runtime_left_is_removed_before_the_next_container(
    open_tree: Opener, engine: StubEngine
) -> None:
    """It is found by the journal's label; containers of other journals are left alone."""
    for name, label in (("left", make_journal_label(open_tree.state_dir)), ("another", "other")):
        words = ["create", "--name", name, "--label", f"sessiontree={label}", "--", IMAGE, "/bin/sh"]
        made = await asyncio.create_subprocess_exec(engine.program, *words)
        assert await made.wait() == 0
    async with open_tree(ScriptedModel(commands("true", "true")), sandbox=engine.spec()) as tree:
        assert engine.containers == ["another", "left"]
        await tree.main.send("go")
        assert [name for name in engine.containers if not name.startswith("sessiontree-")] == ["another"]
    assert engine.containers == ["another"], "a tree that is closed ends its container too"
    assert len(engine.asked("ps")) == 1


async def test_read_only_session_can_not_write_there(open_tree: Opener, engine: StubEngine) -> None:
    """Its container has the workspace read-only, whatever the spec says."""
    agents = {"default": AgentSpec(workspace_access="ro")}
    async with open_tree(ScriptedModel(commands("true")), agents=agents, sandbox=engine.spec()) as tree:
        await tree.main.send("go")
    ((*words,),) = engine.asked("run")
    assert f"{open_tree.workspace.resolve()}:/workspace:ro" in words


def test_commands_of_a_container_are_not_known_to_be_harmless(tmp_path: Path, engine: StubEngine) -> None:
    """A stricter agent and a container exclude each other, where either is set."""
    with pytest.raises(ConfigError, match="exclude each other"):
        AgentSpec(sandbox=engine.spec(), exec_security="safe-bin")
    agents = {"default": AgentSpec(exec_security="paranoid")}
    with pytest.raises(ConfigError, match="agent 'default': exec_security='paranoid' excludes"):
        SessionTree(tmp_path, model=ScriptedModel(["x"]), agents=agents, sandbox=engine.spec())
