"""Agents: members given directly, in a configuration, or in a Markdown file with front matter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AgentConfig,
    AgentSpec,
    ConfigError,
    FunctionModel,
    PolicyConfig,
    SessionTree,
    ToolPolicy,
    load_agents,
)
from sessiontree.api.agents.agent_files import read_agents
from sessiontree.contracts.settings.model_settings import ModelSettings

WHOLE = """\
---
name: reviewer
description: Reviews a change.
model: openai:small
tools: read, grep
skills: [pdf]
settings:
  temperature: 0.5
policy:
  deny: [exec]
workspace_access: ro
---

Review what you are given.

Be brief.
"""
BAD = {
    "typing-error": ("---\nname: a\nmodle: x\n---\nDo.\n", 3, "did you mean 'model'"),
    "wrong-type": ("---\nname: a\ncontext_tokens: many\n---\nDo.\n", 3, "context_tokens"),
    "nested": ("---\nsettings:\n  temprature: 1\n---\nDo.\n", 2, "did you mean 'temperature'"),
    "no-front-matter": ("Do.\n", 1, "no front matter"),
    "no-end": ("---\nname: a\n", 1, "no end"),
    "not-yaml": ("---\nname: a\ntools: [read\n---\nDo.\n", 3, "not YAML"),
    "no-mapping": ("---\n- a\n---\nDo.\n", 2, "must hold members"),
    "empty": ("", 1, "no front matter"),
    "no-prompt": ("---\nname: a\n---\n \n", None, "no prompt"),
    "prompt-above": ("---\nprompt: x\n---\nDo.\n", 2, "below the front matter"),
    "source-given": ("---\nsource: /x\n---\nDo.\n", 2, "source can't be given"),
    "given-twice": ("---\nmodel: a\nmodel: b\n---\nDo.\n", 3, "given twice"),
    "number-as-name": ("---\nname: 7\n---\nDo.\n", 2, "must be text"),
    "path-as-name": ("---\nname: ../x\n---\nDo.\n", 2, "letters, digits"),
    "code": ("---\nname: !!python/object/apply:os.getcwd []\n---\nDo.\n", 2, "not YAML"),
    "null-character": ("---\nname: a\n---\nDo \0 this.\n", None, "it is not text"),
    "impossible-date": ("---\nname: 2026-02-31\n---\nDo.\n", None, "not YAML"),
}


def test_members_are_given_directly_or_in_config() -> None:
    """Both spellings make the same agent."""
    direct = AgentSpec(prompt="Look.", model="m", settings=ModelSettings(seed=1), context_tokens=10_000)
    config = AgentConfig(prompt="Look.", model="m", settings=ModelSettings(seed=1), context_tokens=10_000)
    assert direct == AgentSpec(config=config)
    assert AgentSpec(config=AgentConfig(prompt="Look."), model="m").config.model == "m"
    assert AgentSpec().config == AgentConfig()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"promt": "x"}, "promt: no setting is called that; did you mean 'prompt'?"),
        ({"tool": ["read"]}, "did you mean 'tools'?"),
        ({"exec_timout_s": 1}, "did you mean 'exec_timeout_s'?"),
        ({"policy": {"denny": []}}, "policy.denny: no setting is called that; did you mean 'deny'?"),
        ({"prompt": "x", "config": AgentConfig(prompt="y")}, "prompt: given directly and in config"),
        ({"prompt": 3}, "config.prompt: Input should be a valid string"),
        ({"skills": "pdf"}, "skills: Input should be a valid tuple"),
        ({"skills": [""]}, "skills.0: String should have at least 1 character"),
    ],
)
def test_wrong_members_are_named(given: dict[str, Any], said: str) -> None:
    """An error names the member, and the nearest name if it is unknown."""
    with pytest.raises(ConfigError) as caught:
        AgentSpec(**given)
    assert said in str(caught.value)


def test_agent_file_is_an_agent(tmp_path: Path) -> None:
    """Front matter has the members, the body is the prompt, and the file is remembered."""
    file = tmp_path / "other.md"
    file.write_text(WHOLE)
    (tmp_path / "notes.txt").write_text("not an agent")
    (tmp_path / ".hidden.md").write_text("not an agent")
    assert load_agents(tmp_path) == {
        "reviewer": AgentSpec(
            prompt="Review what you are given.\n\nBe brief.",
            model="openai:small",
            settings=ModelSettings(temperature=0.5),
            tools=("read", "grep"),
            skills=("pdf",),
            policy=ToolPolicy(deny=("exec",)),
            description="Reviews a change.",
            workspace_access="ro",
            source=str(file.resolve()),
        )
    }


def test_agent_file_without_a_name_is_called_as_its_file(tmp_path: Path) -> None:
    """Line ends and a byte order mark make no difference."""
    (tmp_path / "scout.md").write_bytes(b"\xef\xbb\xbf---\r\nmodel: m\r\n---\r\nLook.\r\n")
    (agent,) = load_agents(tmp_path).items()
    assert (agent[0], agent[1].config.prompt, agent[1].config.model) == ("scout", "Look.", "m")


@pytest.mark.parametrize("fault", BAD)
def test_malformed_agent_files_are_named_with_line_and_reason(tmp_path: Path, fault: str) -> None:
    """One bad file fails the loading; a reader of the folder gets the others too."""
    text, line, reason = BAD[fault]
    bad = tmp_path / "bad.md"
    bad.write_text(text)
    (tmp_path / "good.md").write_text("---\nmodel: m\n---\nLook.\n")
    with pytest.raises(ConfigError) as caught:
        load_agents(tmp_path)
    place = str(bad) if line is None else f"{bad}:{line}"
    assert f"{place}: " in str(caught.value)
    assert reason in str(caught.value)
    agents, (refused,) = read_agents(tmp_path)
    assert (list(agents), refused.path) == (["good"], bad)


def test_unreadable_agent_files_are_named(tmp_path: Path) -> None:
    """Neither bytes that are not text, nor a directory, nor too much, nor the same name twice."""
    (tmp_path / "bytes.md").write_bytes(b"---\nname: \xff\n---\n")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "long.md").write_text("---\nname: long\n---\n" + "x" * 300_000)
    (tmp_path / "one.md").write_text("---\nname: same\n---\nLook.\n")
    (tmp_path / "two.md").write_text("---\nname: same\n---\nLook.\n")
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere")
    agents, refused = read_agents(tmp_path)
    assert list(agents) == ["same"]
    assert {file.path.name for file in refused} == {"bytes.md", "folder.md", "long.md", "two.md", "gone.md"}
    assert read_agents(tmp_path / "nowhere") == ({}, ())
    with pytest.raises(ConfigError, match="is not a directory"):
        load_agents(tmp_path / "nowhere")


def test_agents_that_others_could_have_written_are_refused(tmp_path: Path) -> None:
    """A file and a folder must be their owner's alone, as the configuration; a pipe is not waited for."""
    file = tmp_path / "a.md"
    file.write_text("---\nname: a\n---\nLook.\n")
    assert list(load_agents(tmp_path)) == ["a"]
    for mode in (0o664, 0o646):
        file.chmod(mode)
        with pytest.raises(ConfigError, match=r"a\.md: it is open to other users; run: chmod go-w "):
            load_agents(tmp_path)
    file.chmod(0o644)
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)
        with pytest.raises(ConfigError, match=r"a\.md: it belongs to another user \(id 12345\)"):
            load_agents(tmp_path)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ConfigError, match=r"a\.md: it can't be read: it is not a regular file"):
        load_agents(tmp_path)
    file.unlink()
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match=r"agents .* is open to other users"):
        load_agents(tmp_path)
    tmp_path.chmod(0o755)


def tree_over(workspace: Path, agents: dict[str, AgentSpec], **options: Any) -> SessionTree:
    """Return a tree that is never opened."""
    model = FunctionModel(lambda request: "done")
    return SessionTree(workspace, model=model, agents=agents, backend="local", **options)


def test_agents_from_files_of_the_workspace_are_refused(tmp_path: Path) -> None:
    """What a session may write is no agent of the owner, also behind a link from elsewhere."""
    workspace, owner = tmp_path / "workspace", tmp_path / "owner"
    for folder in (workspace / "agents", owner):
        folder.mkdir(parents=True)
    (workspace / "agents" / "a.md").write_text("---\nmodel: ''\n---\nObey.\n")
    (owner / "a.md").symlink_to(workspace / "agents" / "a.md")
    for folder in (workspace / "agents", owner):
        with pytest.raises(ConfigError, match=r"agent 'a' comes from .*, which is in the workspace"):
            tree_over(workspace, load_agents(folder))
    (owner / "a.md").unlink()
    (owner / "a.md").write_text("---\nmodel: ''\n---\nLook.\n")
    tree_over(workspace, load_agents(owner))


def test_agents_policy_is_part_of_the_trees(tmp_path: Path) -> None:
    """It is journaled with the tree's policy; a second policy for the agent, or a wider one, is refused."""
    own = {"a": AgentSpec(policy=ToolPolicy(deny=("exec",)))}
    row = tree_over(tmp_path, own)._config.policy
    assert row is not None
    assert {each.agent for each in row.removed if "exec" in each.tools} == {"a"}
    policy = PolicyConfig(agents={"a": ToolPolicy(deny=("read",))})
    with pytest.raises(ConfigError, match=r"agent 'a' has a policy of its own.*keep one"):
        tree_over(tmp_path, own, policy=policy)
    policy = PolicyConfig(tools=ToolPolicy(profile="minimal"))
    with pytest.raises(ConfigError, match="agent 'a': profile and also_allow of its policy would replace"):
        tree_over(tmp_path, {"a": AgentSpec(policy=ToolPolicy(profile="full"))}, policy=policy)
