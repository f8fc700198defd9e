"""File tools outside the workspace: in directories that the owner allows, each call after an approval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree import AgentConfig, AgentSpec, ApplyPatchPolicy, FunctionModel, PolicyConfig, script_call
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.session_facts import ApprovalWanted
from sessiontree.contracts.values.jsonable import JsonValue
from tests.behaviour.fact_fixtures import facts_of, results
from tests.behaviour.job_fakes import steps
from tests.behaviour.tree_fixtures import Opener


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory outside the workspace, next to one that is not allowed."""
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret.txt").write_text("hidden words\n")
    (allowed / "out").symlink_to(tmp_path / "other")
    return allowed


def allowing(root: Path) -> dict[str, AgentSpec]:
    """Return agents of which the default one may reach a directory."""
    return {"default": AgentSpec(config=AgentConfig(outside_roots=(str(root),)))}


def patch_of(path: Path) -> str:
    """Return a patch that adds a file."""
    return f"*** Begin Patch\n*** Add File: {path}\n+new\n*** End Patch\n"


@pytest.mark.covers("I38", "S38", "WSP17")
async def test_allowed_calls_reach_the_directory(open_tree: Opener, outside: Path) -> None:
    """Each is asked about; results name absolute paths."""
    file = str(outside / "a.txt")
    model = steps(
        script_call("read", path=file),
        script_call("write", path=str(outside / "new" / "b.txt"), content="three\n"),
        script_call("edit", path=file, old_text="two", new_text="2"),
        script_call("find", path=str(outside), pattern="**/*.txt"),
        script_call("grep", path=str(outside), pattern="three"),
        script_call("apply_patch", patch=patch_of(outside / "c.txt")),
        "done",
    )
    always = PolicyConfig(apply_patch=ApplyPatchPolicy(offer="always"))
    async with open_tree(model, agents=allowing(outside), approvals="auto", policy=always) as tree:
        await tree.main.send("go")
        read, *others, patched = results(tree, "main")
        assert "one\ntwo" in read.text
        assert [each.is_error for each in others] == [False] * 4
        assert not patched.is_error, patched.text
        assert f"{outside}/new/b.txt" in others[0].text
        assert others[2].text.split() == [file, f"{outside}/new/b.txt"]
        assert f"{outside}/new/b.txt:1: three" in others[3].text
        assert len(await facts_of(tree, ApprovalWanted)) == 6
    assert (outside / "a.txt").read_text() == "one\n2\n"
    assert (outside / "new" / "b.txt").read_text() == "three\n"
    assert (outside / "c.txt").read_text() == "new\n"


@pytest.mark.covers("I38")
async def test_nothing_else_is_reached(open_tree: Opener, outside: Path) -> None:
    """Neither a path next to the directory, nor one out of it, nor by a link; nobody is asked."""
    other = outside.parent / "other"
    (open_tree.workspace / "link").symlink_to(outside)
    paths = [
        str(other / "secret.txt"),
        f"{outside}/out/secret.txt",
        f"{outside}/../other/secret.txt",
        "link/a.txt",
        f"{open_tree.workspace}/../allowed/a.txt",
    ]
    model = steps(
        *(script_call("read", path=path) for path in paths),
        script_call("write", path=f"{outside}/out/secret.txt", content="x"),
        script_call("write", path="link/b.txt", content="x"),
        "done",
    )
    async with open_tree(model, agents=allowing(outside), approvals="auto") as tree:
        await tree.main.send("go")
        for refused in results(tree, "main"):
            assert refused.is_error
            assert "it leads outside the workspace" in refused.text, refused.text
        assert await facts_of(tree, ApprovalWanted) == []
    assert (other / "secret.txt").read_text() == "hidden words\n"
    assert not (outside / "b.txt").exists()


@pytest.mark.covers("I38")
@pytest.mark.parametrize(
    ("is_allowed", "approvals", "words"),
    [(False, "auto", "outside the workspace"), (True, "never", "denied")],
)
async def test_without_setting_or_approval_it_is_closed(
    open_tree: Opener, outside: Path, is_allowed: bool, approvals: str, words: str
) -> None:
    """Both are needed."""
    file = str(outside / "a.txt")
    model = steps(
        script_call("read", path=file),
        script_call("write", path=file, content="changed"),
        "done",
    )
    agents = allowing(outside) if is_allowed else {}
    async with open_tree(model, agents=agents, approvals=approvals) as tree:
        await tree.main.send("go")
        for refused in results(tree, "main"):
            assert refused.is_error
            assert words in refused.text
    assert (outside / "a.txt").read_text() == "one\ntwo\n"


@pytest.mark.covers("I38")
async def test_child_reaches_what_all_above_it_may(open_tree: Opener, outside: Path) -> None:
    """An agent's own setting widens nothing."""
    inner = outside / "inner"
    inner.mkdir()
    (inner / "i.txt").write_text("inside\n")

    def spec(*roots: Path) -> AgentSpec:
        return AgentSpec(config=AgentConfig(outside_roots=tuple(map(str, roots))))

    agents = {"default": spec(outside), "narrow": spec(inner, outside.parent), "none": spec()}
    async with open_tree(FunctionModel(lambda request: "done"), agents=agents, approvals="auto") as tree:
        narrow = await tree.main.spawn("branch", "t", agent="narrow")
        none = await tree.main.spawn("branch", "t", agent="none")
        read: dict[str, JsonValue] = {"path": str(inner / "i.txt")}
        assert "inside" in (await narrow.call("read", read)).text
        await refuse(narrow, path=str(outside / "a.txt"))
        await refuse(none, **read)


@pytest.mark.covers("I38")
async def test_worker_only_reads_there(open_tree: Opener, outside: Path) -> None:
    """It has nothing to write with."""
    model = steps(
        script_call("read", path=str(outside / "a.txt")),
        script_call("write", path=str(outside / "b.txt"), content="x"),
        "done",
    )
    async with open_tree(model, agents=allowing(outside), approvals="auto") as tree:
        worker = await tree.main.spawn("worker", "t")
        await worker.result()
        read, written = results(tree, worker.session_id)
        assert "one" in read.text
        assert "does not hold write" in written.text
    assert not (outside / "b.txt").exists()


async def refuse(session: Any, **arguments: JsonValue) -> None:
    """Read, and be refused."""
    with pytest.raises(Exception, match="outside the workspace"):
        await session.call("read", arguments)


@pytest.mark.parametrize("root", ["relative", "/a/../b", "/nul\0", ""], ids=ascii)
def test_root_is_an_absolute_path(root: str) -> None:
    """Anything else is refused when the agent is configured."""
    with pytest.raises((ConfigError, ValueError), match="absolute"):
        AgentConfig(outside_roots=(root,))
