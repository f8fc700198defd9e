"""Modes of commands: what runs unasked, what an owner's always covers, and what strict agents may run."""

from __future__ import annotations

import pytest

from sessiontree import (
    AgentConfig,
    AgentSpec,
    FunctionModel,
    ModelRequest,
    PermissionDenied,
    ScriptedModel,
    script_call,
)
from sessiontree.contracts.facts.tree_facts import ApprovalDecided, ToolAlwaysAllowed
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import asked, facts_of, results
from tests.behaviour.tree_fixtures import Opener

ASKING = {"default": AgentSpec(config=AgentConfig(system_tier="ask"))}


def running(*commands: str) -> ScriptedModel:
    """Return a model that runs commands one after the other."""
    script: list[Answer] = [script_call("exec", command=command) for command in commands]
    return ScriptedModel([*script, "done"])


@pytest.mark.covers("S55")
@pytest.mark.slow
async def test_smart_runs_harmless_commands_and_asks_about_others(open_tree: Opener) -> None:
    """Nobody is woken for reading; what would change something waits, with all it says."""
    (open_tree.workspace / "words").write_text("b\na\n")
    model = running("sort words | head -1", "nice sort -o words words")
    async with open_tree(model, agents=ASKING, approvals="smart") as tree:
        branch = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        assert pending.request.arguments["command"] == "nice sort -o words words"
        await pending.approve()
        await branch.result()
        assert results(tree, branch.session_id)[0].text == "a\n"
        decided = [(fact.decision, fact.by) for fact in await facts_of(tree, ApprovalDecided)]
        assert decided == [("approved", "mode"), ("approved", "person")]
    assert (open_tree.workspace / "words").read_text() == "a\nb\n"


@pytest.mark.covers("REL-L14", "APP12")
@pytest.mark.slow
async def test_always_for_a_command_covers_its_shape(open_tree: Opener) -> None:
    """REL-L14: the wrapper names nothing; another program behind it is asked about again."""
    model = running("sh -c 'mkdir one'", "mkdir two", "sh -c 'rmdir two'", "sh -c 'rmdir one'")
    async with open_tree(model, agents=ASKING) as tree:
        branch = await tree.main.spawn("branch", "go")
        for count, command in enumerate(("sh -c 'mkdir one'", "sh -c 'rmdir two'", "sh -c 'rmdir one'"), 1):
            (pending,) = await asked(tree, count)
            assert pending.request.arguments["command"] == command
            await pending.approve(always=True)
        await branch.result()
        decided = [fact.by for fact in await facts_of(tree, ApprovalDecided)]
        assert decided == ["person", "always", "person", "person"]
        covers = [fact.covers for fact in await facts_of(tree, ToolAlwaysAllowed)]
        assert [[shape.rpartition("/")[2] for shape in each or ()] for each in covers] == [
            ["mkdir …"],
            ["rmdir exactly . two"],
            ["rmdir exactly . one"],
        ]
    assert list(open_tree.workspace.iterdir()) == []


async def test_strict_agents_commands_stay_strict_below_it(open_tree: Opener) -> None:
    """The session learns what it may run; a child of a laxer agent is held to the same."""
    agents = {
        "default": AgentSpec(config=AgentConfig(exec_security="paranoid")),
        "lax": AgentSpec(config=AgentConfig(exec_security="full")),
    }
    (open_tree.workspace / "words").write_text("one\n")
    async with open_tree(running("cat words", "touch words"), agents=agents) as tree:
        branch = await tree.main.spawn("branch", "go", agent="lax")
        assert branch.status().exec_security == "paranoid"
        await branch.result()
        read, refused = results(tree, branch.session_id)
        assert (read.text, read.is_error) == ("one\n", False)
        assert refused.is_error
        assert "exec security is 'paranoid'" in refused.text
        with pytest.raises(PermissionDenied, match="exec security is 'paranoid'"):
            await tree.main.call("exec", {"command": "touch words"})


@pytest.mark.covers("S46")
@pytest.mark.slow
async def test_read_only_workspace_stays_so_below(open_tree: Opener) -> None:
    """No file tool that writes is shown or held, no command writes, and a laxer agent's child may no more."""
    agents = {
        "default": AgentSpec(config=AgentConfig(workspace_access="ro")),
        "lax": AgentSpec(config=AgentConfig(workspace_access="rw")),
    }
    (open_tree.workspace / "words").write_text("one\n")

    def model(request: ModelRequest) -> Answer:
        names = {each.name for each in request.tools}
        assert {"read", "exec"} <= names
        assert not {"write", "edit"} & names
        script: list[Answer] = [
            script_call("exec", command="cat words"),
            script_call("exec", command="echo two >>words; touch more"),
            script_call("write", path="more", content=""),
            "done",
        ]
        return script[sum(isinstance(each, ToolResultMessage) for each in request.messages)]

    async with open_tree(FunctionModel(model), agents=agents) as tree:
        branch = await tree.main.spawn("branch", "go", agent="lax")
        await branch.result()
        read, written, refused = results(tree, branch.session_id)
        assert read.text == "one\n"
        assert "Read-only file system" in written.text
        assert "workspace_access is 'ro'" in refused.text
        with pytest.raises(PermissionDenied, match="workspace_access is 'ro'"):
            await tree.main.call("edit", {"path": "words", "old_text": "one", "new_text": "two"})
    assert [path.name for path in open_tree.workspace.iterdir()] == ["words"]
    assert (open_tree.workspace / "words").read_text() == "one\n"


@pytest.mark.covers("REL-L10")
async def test_allowed_command_runs_as_what_was_allowed(open_tree: Opener) -> None:
    """REL-L9, REL-L10: not where a script was changed or a directory swapped since it was asked about."""
    workspace = open_tree.workspace
    (workspace / "a.sh").write_text("echo first >>said\n")
    for name in ("here", "there"):
        (workspace / name).mkdir()
    (workspace / "place").symlink_to("here")
    script: list[Answer] = [
        script_call("exec", command="sh a.sh"),
        script_call("exec", command="sh a.sh"),
        script_call("exec", command="pwd -P >>../said", workdir="place"),
        "done",
    ]
    async with open_tree(ScriptedModel(script), agents=ASKING) as tree:
        branch = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        await pending.approve()
        (pending,) = await asked(tree, 2)
        (workspace / "a.sh").write_text("echo another >>said\n")
        await pending.approve()
        (pending,) = await asked(tree, 3)
        (workspace / "place").unlink()
        (workspace / "place").symlink_to("there")
        await pending.approve()
        await branch.result()
        told = [message.is_error for message in results(tree, branch.session_id)]
        assert told == [False, True, True]
        assert "the files it names have changed" in results(tree, branch.session_id)[1].text
    assert (workspace / "said").read_text() == "first\n"
