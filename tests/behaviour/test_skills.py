"""Skills of the owner: listed for agents that name them, read on demand, run by commands alone."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AgentSpec,
    ConfigError,
    ExecutionError,
    FunctionModel,
    ModelRequest,
    PermissionDenied,
    PolicyConfig,
    SpawnRefused,
    ToolPolicy,
    script_call,
)
from sessiontree.api.options.skills import SkillWarning
from sessiontree.models.answers import Answer
from tests.behaviour.tree_fixtures import Opener

pytestmark = pytest.mark.filterwarnings("ignore:skill 'ps' of agent 'printer' reaches nobody")

SKILL = """\
---
name: {name}
description: Handles {name}
  files.
license: free
---

First run {name}.sh, then look at /skills/{name}/notes/more.md.
"""
AGENTS = {
    "default": AgentSpec(skills=("pdf", "csv")),
    "printer": AgentSpec(skills=("pdf", "ps")),
    "plain": AgentSpec(),
}


def add_skill(folder: Path, name: str, text: str = SKILL) -> Path:
    """Create a skill with a script and a further file; return its folder."""
    place = folder / name
    (place / "notes").mkdir(parents=True)
    (place / "SKILL.md").write_text(text.format(name=name))
    (place / "notes" / "more.md").write_text(f"more of {name}\n")
    script = place / f"{name}.sh"
    script.write_text(f"#!/bin/bash\necho {name} ran with $1\n")
    script.chmod(0o755)
    return place


def contents(folder: Path) -> dict[Path, bytes]:
    """Return all files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """The owner's folder with three skills."""
    folder = tmp_path / "owner" / "skills"
    for name in ("pdf", "csv", "ps"):
        add_skill(folder, name)
    return folder


def prompt_of(request: ModelRequest) -> Answer:
    """Reply with the system prompt; if the task is a path, with what ``read`` says of it."""
    task = request.messages[0].text
    if not task.startswith("/"):
        return request.system_prompt
    return script_call("read", path=task) if request.turn == 1 else request.messages[-1].text


def listed(prompt: str) -> list[str]:
    """Return the names of the skills that a prompt lists."""
    if "Skills: " not in prompt:
        return []
    return [line[2:].partition(":")[0] for line in prompt.splitlines() if line.startswith("- ")]


@pytest.mark.covers("A1")
async def test_skills_are_held_by_agents_that_name_them_below_parents_that_hold_them(
    open_tree: Opener, skills: Path
) -> None:
    """A child holds what its agent names and its parent holds: prompt and files agree about it."""
    async with open_tree(FunctionModel(prompt_of), agents=AGENTS, skills=skills) as tree:
        main = tree.main
        prompt = await main.send("hello")
        assert "- pdf: Handles pdf files." in prompt
        assert listed(prompt) == ["pdf", "csv"]
        branch = await main.spawn("branch", "work", agent="printer")
        worker = await branch.spawn("worker", "look")
        below = await worker.result()
        assert listed(below.summary) == ["pdf"]
        assert "Commands see" in prompt and "Commands see" not in below.summary
        text = await branch.call("read", {"path": "/skills/pdf/SKILL.md"})
        assert "First run pdf.sh" in str(text.output)
        for missing in ("csv", "ps"):
            with pytest.raises(ExecutionError, match=f"no skill is named '{missing}'; choose one of: pdf"):
                await branch.call("read", {"path": f"/skills/{missing}/SKILL.md"})
        (plain,) = await main.map("worker", ["look"], agent="plain")
        assert listed(plain.summary) == []


@pytest.mark.covers("A1")
@pytest.mark.on_ray
async def test_workers_read_search_and_list_the_files_of_a_skill(open_tree: Opener, skills: Path) -> None:
    """A Worker's process may read them; no link leads out of them."""
    (skills / "pdf" / "link").symlink_to("/etc/passwd")
    (skills / "pdf" / "twin").symlink_to("notes/more.md")
    async with open_tree(FunctionModel(prompt_of), agents=AGENTS, skills=skills) as tree:
        paths = ("notes/more.md", "twin", "../csv/../pdf/twin", "link", "../../etc/passwd")
        read = await tree.main.map("worker", [f"/skills/pdf/{path}" for path in paths])
        assert [each.summary.strip() for each in read[:3]] == ["more of pdf"] * 3
        assert ["outside the workspace" in each.summary for each in read[3:]] == [True, True]
        found = await tree.main.call("find", {"pattern": "*.md", "path": "/skills"})
        files = [
            f"/skills/{name}/{file}" for name in ("csv", "pdf") for file in ("SKILL.md", "notes/more.md")
        ]
        assert str(found.output).split("\n")[:4] == files
        hits = await tree.main.call("grep", {"pattern": "more of", "path": "/skills/pdf"})
        assert "/skills/pdf/notes/more.md:1: more of pdf" in str(hits.output)


@pytest.mark.covers("A1")
async def test_scripts_of_a_skill_are_run_by_commands_and_changed_by_nobody(
    open_tree: Opener, skills: Path
) -> None:
    """Commands see the folder read-only; write and edit do not reach it."""
    before = contents(skills)
    async with open_tree(FunctionModel(prompt_of), agents=AGENTS, skills=skills) as tree:
        ran = await tree.main.call("exec", {"command": "/skills/pdf/pdf.sh one; ls /skills"})
        assert str(ran.output).split() == ["pdf", "ran", "with", "one", "csv", "pdf"]
        wrote = await tree.main.call("exec", {"command": "echo x >> /skills/pdf/pdf.sh; rm -r /skills/pdf"})
        assert "Read-only file system" in str(wrote.output)
        for tool, rest in (("write", {"content": "x"}), ("edit", {"old_text": "more", "new_text": "less"})):
            with pytest.raises(PermissionDenied, match="outside the workspace"):
                await tree.main.call(tool, {"path": "/skills/pdf/notes/more.md", **rest})
    assert contents(skills) == before


@pytest.mark.covers("A1")
async def test_program_grants_a_child_skills_of_its_parent(open_tree: Opener, skills: Path) -> None:
    """Fewer or others than its agent names, for its own children too; never one that the parent lacks."""
    async with open_tree(FunctionModel(prompt_of), agents=AGENTS, skills=skills) as tree:
        (plain,) = await tree.main.map("worker", ["look"], agent="plain", skills=["csv"])
        assert listed(plain.summary) == ["csv"]
        assert listed((await tree.run("look", skills=())).summary) == []
        branch = await tree.main.spawn("branch", "work", skills=["pdf", "pdf"])
        (below,) = await branch.map("worker", ["look"])
        assert listed(below.summary) == ["pdf"]
        with pytest.raises(SpawnRefused, match="main/b2 holds no skill 'csv' to pass on; it holds: pdf"):
            await branch.spawn("worker", "look", skills=["csv"])
        with pytest.raises(SpawnRefused, match="main holds no skill 'ps'"):
            await tree.main.spawn("worker", "look", agent="printer", skills=["ps"])
        for wrong in ("pdf", [1], 3):
            with pytest.raises(
                ConfigError, match=r"skills is .*; give a list of names|skills\.0 is 1; give text"
            ):
                await tree.main.spawn("worker", "look", skills=wrong)  # type: ignore[call-overload]
            with pytest.raises(
                ConfigError, match=r"skills is .*; give a list of names|skills\.0 is 1; give text"
            ):
                await tree.main.map("worker", ["look"], skills=wrong)  # type: ignore[call-overload]


@pytest.mark.covers("A1")
async def test_resume_gives_no_skill_that_the_tree_did_not_have(open_tree: Opener, skills: Path) -> None:
    """The journal says who holds which skill; a skill that is not given again is gone."""
    few = {"default": AgentSpec(skills=("pdf",))}
    async with open_tree(FunctionModel(prompt_of), agents=few, skills=skills) as tree:
        first = await tree.main.send("hello")
    more = {"default": AgentSpec(skills=("pdf", "csv"))}
    model = FunctionModel(prompt_of)
    async with await open_tree.resume(tree.tree_id, model, agents=more, skills=skills) as tree:
        assert await tree.main.send("again") == first
        (child,) = await tree.main.map("worker", ["look"])
        assert listed(child.summary) == ["pdf"]
        with pytest.raises(ExecutionError, match="no skill is named 'csv'"):
            await tree.main.call("read", {"path": "/skills/csv/SKILL.md"})
    async with await open_tree.resume(tree.tree_id, model, agents=more) as tree:
        with pytest.raises(PermissionDenied, match="outside the workspace"):
            await tree.main.call("read", {"path": "/skills/pdf/SKILL.md"})


@pytest.mark.covers("A1")
def test_malformed_skills_are_named_and_left_out(tmp_path: Path, skills: Path) -> None:
    """The tree goes on without them, also where an agent names one."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    inside = add_skill(workspace, "inside")
    (skills / "inside").symlink_to(inside)
    add_skill(skills, "other", SKILL.replace("{name}", "another"))
    add_skill(skills, "nameless", "---\ndescription: x\n---\nDo.\n")
    add_skill(skills, "silent", "---\nname: silent\n---\nDo.\n")
    add_skill(skills, "empty", "---\nname: empty\ndescription: x\n---\n")
    add_skill(skills, "long", f"---\nname: long\ndescription: {'x' * 1025}\n---\nDo.\n")
    add_skill(skills, "Loud", SKILL)
    (skills / "notes").mkdir()
    (add_skill(skills, "open") / "SKILL.md").chmod(0o664)
    add_skill(skills, "shared").chmod(0o777)
    (skills / "piped").mkdir()
    os.mkfifo(skills / "piped" / "SKILL.md")
    opener = Opener("local", workspace, tmp_path / "state")
    agents = {"default": AgentSpec(skills=("pdf", "silent"))}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SkillWarning)
        opener(FunctionModel(prompt_of), agents=agents, skills=[skills])
    said = sorted(str(each.message).removeprefix("skill left out: ") for each in caught)
    expected = {
        "Loud": ":2: name 'Loud' may have",
        "empty": ": it has no instructions",
        "inside": ": it is in the workspace",
        "long": ":3: description has 1025 characters",
        "nameless": ":1: name is missing",
        "open": ": it is open to other users; run: chmod go-w ",
        "piped": ": it can't be read: it is not a regular file",
        "shared": ": its folder is open to other users; run: chmod go-w ",
        "other": ":2: name 'another' differs from its folder 'other'",
        "silent": ":1: description is missing",
    }
    starts = [f"{skills / name / 'SKILL.md'}{text}" for name, text in sorted(expected.items())]
    assert [line[: len(start)] for line, start in zip(said, starts, strict=False)] == starts
    assert len(said) == len(expected)


@pytest.mark.covers("A1")
def test_agents_whose_skills_nobody_can_read_are_named(tmp_path: Path, skills: Path) -> None:
    """A list of tools or a policy that leaves no tool that reads files hides the skills."""
    (tmp_path / "workspace").mkdir()
    opener = Opener("local", tmp_path / "workspace", tmp_path / "state")
    blind: list[dict[str, Any]] = [
        {"agents": {"default": AgentSpec(skills=("pdf",), tools=("write",))}},
        {
            "agents": {"default": AgentSpec(skills=("pdf",))},
            "policy": PolicyConfig(tools=ToolPolicy(allow=())),
        },
    ]
    for options in blind:
        with pytest.warns(SkillWarning, match="agent 'default' names skills, but holds no tool that reads"):
            opener(FunctionModel(prompt_of), skills=skills, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SkillWarning)
        seeing = AgentSpec(skills=("pdf",), tools=("write", "grep"))
        opener(FunctionModel(prompt_of), skills=skills, agents={"default": seeing})
        opener(FunctionModel(prompt_of), skills=skills, agents={"default": AgentSpec(tools=())})


def test_unknown_skills_and_impossible_folders_are_refused(tmp_path: Path, skills: Path) -> None:
    """A typing error gets the nearest name; a folder must be there, and a name must have one skill."""
    (tmp_path / "workspace").mkdir()
    opener = Opener("local", tmp_path / "workspace", tmp_path / "state")
    model = FunctionModel(prompt_of)
    with pytest.raises(ConfigError, match="agent 'default': no skill is named 'pfd'; did you mean 'pdf'"):
        opener(model, agents={"default": AgentSpec(skills=("pfd",))}, skills=skills)
    with pytest.raises(ConfigError, match="no skill is named 'pdf'; none is known"):
        opener(model, agents={"default": AgentSpec(skills=("pdf",))})
    with pytest.raises(ConfigError, match="is not a directory"):
        opener(model, skills=skills / "nowhere")
    with pytest.raises(ConfigError, match="is a skill; give the folder that holds it"):
        opener(model, skills=skills / "pdf")
    with pytest.raises(
        ConfigError, match="skills: give the folder that holds them, or a list of folders, not 3"
    ):
        opener(model, skills=3)
    add_skill(tmp_path / "more", "pdf")
    with pytest.raises(ConfigError, match=r"skill 'pdf' is in .* and "):
        opener(model, skills=[skills, tmp_path / "more"])
    with pytest.warns(SkillWarning, match="skill 'pdf' of agent 'a' reaches nobody"):
        opener(model, agents={"a": AgentSpec(skills=("pdf",))}, skills=skills)
