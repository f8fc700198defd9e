"""Children work in workspaces of their own, and their parent takes what they changed, or does not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessiontree import AgentConfig, AgentSpec, FunctionModel, ModelRequest, SpawnRefused, script_call
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.facts.tree_facts import ChangesKept, ChangesSettled
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import facts_of, results, until
from tests.behaviour.tree_fixtures import Opener


def git(root: Path, *words: str) -> str:
    """Run git in a workspace and return what it writes."""
    settings = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "core.hooksPath=/dev/null")
    done = subprocess.run(["git", *settings, *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


def repository(root: Path, files: dict[str, str]) -> dict[str, bytes]:
    """Make a repository with one commit; return the files of its git directory."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return inside_git(root)


def inside_git(root: Path) -> dict[str, bytes]:
    """Return every file of a repository's git directory."""
    found = (root / ".git").rglob("*")
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(found) if path.is_file()}


def make_hostile(root: Path, mark: Path) -> None:
    """Have everything that git would run leave a mark."""
    script = root / ".git/hostile.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o755)
    for name in ("post-checkout", "post-index-change", "pre-commit", "post-merge", "applypatch-msg"):
        (root / ".git/hooks").mkdir(exist_ok=True)
        (root / ".git/hooks" / name).write_bytes(script.read_bytes())
        (root / ".git/hooks" / name).chmod(0o755)
    with (root / ".git/config").open("a") as config:
        config.write(
            f'[core]\n\tfsmonitor = {script}\n\thooksPath = .git/hooks\n[filter "x"]\n\tsmudge = {script}\n'
            f'\tclean = {script}\n\tprocess = {script}\n[diff "x"]\n\ttextconv = {script}\n'
            f"\tcommand = {script}\n[diff]\n\texternal = {script}\n"
        )
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/attributes").write_text("* filter=x diff=x\n")


def by_task(request: ModelRequest) -> Answer:
    """Do what the task says, a call for each line: ``path text``, or ``! command``."""
    done = sum(isinstance(each, ToolResultMessage) for each in request.messages)
    task = request.messages[0].text.splitlines()
    if done >= len(task):
        return "done"
    head, _, rest = task[done].partition(" ")
    if head == "!":
        return script_call("exec", command=rest)
    return script_call("write", path=head, content=f"{rest}\n")


MODEL = FunctionModel(by_task)


@pytest.mark.covers("OWN1", "OWN2", "OWN3", "OWN4")
@pytest.mark.slow
@pytest.mark.on_ray
async def test_child_changes_its_copy_alone_until_its_parent_merges(open_tree: Opener) -> None:
    """Its commands see no other place; nothing that the repository names runs; git's files stay as they are.

    The parent's own change, which is not committed, is in the copy and is respected by the merge.
    """
    root, mark = open_tree.workspace, open_tree.workspace.parent / "mark"
    repository(root, {"a.txt": "1\n", "b/c.txt": "2\n", ".gitignore": "*.log\n"})
    (root / "b/c.txt").write_text("mine\n")
    (root / "huge.log").write_text("ignored")
    make_hostile(root, mark)
    before = inside_git(root)
    async with open_tree(MODEL) as tree:
        task = f"new.txt hello\n! ls {root} {root.parent}; cat b/c.txt huge.log; echo 2 >> a.txt; touch x.log"
        child = await tree.main.spawn("branch", task, workspace="own")
        result = await child.result()
        assert result.summary == "done"
        seen = results(tree, child.session_id)[1].text
        assert (root / "a.txt").read_text() == "1\n"
        (row,) = await tree.main.child_workspaces.list()
        diff = await tree.main.child_workspaces.diff(child.session_id)
        merged = await tree.main.child_workspaces.merge(child.session_id)
        again = await tree.main.child_workspaces.merge(child.session_id)
        kept = await facts_of(tree, ChangesKept)
        settled = await facts_of(tree, ChangesSettled)
    assert "mine" in seen
    assert "huge.log: No such file" in seen
    assert f"cannot access '{root}'" in seen
    assert [each.path for each in kept[0].files] == ["a.txt", "new.txt"]
    assert (row.state, row.files) == ("kept", 2)
    assert "+++ b/a.txt\n@@ -1 +1,2 @@\n 1\n+2\n" in diff
    assert (merged.status, merged.files, again) == ("merged", ("a.txt", "new.txt"), merged)
    assert len(settled) == 1
    assert (root / "a.txt").read_text() == "1\n2\n"
    assert (root / "new.txt").read_text() == "hello\n"
    assert (root / "b/c.txt").read_text() == "mine\n"
    assert not (root / "x.log").exists()
    assert not mark.exists()
    assert inside_git(root) == before


@pytest.mark.covers("OWN4")
async def test_three_of_several_children_conflict(open_tree: Opener) -> None:
    """Those that wrote a file that another one has changed by then; their changes are kept."""
    root = open_tree.workspace
    before = repository(root, {f"{number}.txt": "old\n" for number in range(6)})
    tasks = [f"{number % 6}.txt by {number}" for number in range(9)]
    async with open_tree(MODEL) as tree:
        ended = await tree.main.map("branch", tasks, workspace="own", concurrency=3)
        outcomes = [await tree.main.child_workspaces.merge(each.session_id) for each in ended]
        await tree.main.child_workspaces.discard(ended[6].session_id)
        states = [each.state for each in await tree.main.child_workspaces.list()]
        with pytest.raises(Exception, match="were discarded"):
            await tree.main.child_workspaces.merge(ended[6].session_id)
    assert [each.status for each in outcomes] == ["merged"] * 6 + ["conflict"] * 3
    assert outcomes[7].conflicts[0].path == "1.txt"
    assert states.count("kept") == 2
    assert sorted(states) == ["discarded", *["kept"] * 2, *["merged"] * 6]
    assert [(root / f"{number}.txt").read_text() for number in range(6)] == [f"by {n}\n" for n in range(6)]
    assert inside_git(root) == before


def run_example(root: Path, children: int, state: Path) -> str:
    """Run the example program in a repository, and return what it prints."""
    files = {f"part_{number:02}.txt": "old\n" for number in range(children - 3)}
    before = repository(root, files)
    program = Path(__file__).parents[2] / "docs/examples/forty_children.py"
    done = subprocess.run(
        [sys.executable, str(program), str(root), str(children)],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert inside_git(root) == before
    assert all((root / name).read_text().startswith("by child") for name in files)
    return done.stdout


@pytest.mark.parametrize("children", [6, pytest.param(40, marks=pytest.mark.long)])
def test_example_merges_all_but_three(tmp_path: Path, children: int) -> None:
    """Three conflicts are printed; history and index of the repository are as they were."""
    root = tmp_path / "repository"
    root.mkdir()
    said = run_example(root, children, tmp_path / "state").splitlines()
    assert said[-1] == f"{children - 3} of {children} children were merged"
    assert sorted(line.split(": ")[1] for line in said[:-1]) == ["part_00.txt", "part_01.txt", "part_02.txt"]


@pytest.mark.covers("OWN2")
async def test_child_s_child_has_a_copy_of_that_copy(open_tree: Opener) -> None:
    """It begins with what its parent has written; only its parent merges it."""
    root = open_tree.workspace
    (root / "a.txt").write_text("1\n")
    async with open_tree(MODEL) as tree:
        child = await tree.main.spawn("branch", "! true", workspace="own")
        await child.call("write", {"path": "a.txt", "content": "2\n"})
        inner = await child.spawn("branch", "! cat a.txt\nb.txt deep", workspace="own")
        await inner.result()
        sharing = await child.spawn("branch", "c.txt shared")
        await sharing.result()
        merged = await child.child_workspaces.merge(inner.session_id)
        with pytest.raises(Exception, match="not a child of main"):
            await tree.main.child_workspaces.merge(inner.session_id)
        await child.result()
        outer = await tree.main.child_workspaces.merge(child.session_id)
        seen = results(tree, inner.session_id)[0].text
    assert seen.startswith("2")
    assert merged.files == ("b.txt",)
    assert outer.files == ("a.txt", "b.txt", "c.txt")
    assert (root / "b.txt").read_text() == "deep\n"


@pytest.mark.covers("OWN3", "OWN6")
@pytest.mark.own_runtime
async def test_copy_outlives_its_program_and_a_failed_child(open_tree: Opener) -> None:
    """A tree that is taken up again goes on in the copy; what a cancelled child wrote is kept.

    Copies that belong to no spawn are removed then.
    """
    root = open_tree.workspace
    (root / "a.txt").write_text("1\n")
    tree = open_tree(MODEL)
    await tree.start()
    child = await tree.main.spawn("branch", "! true", workspace="own")
    await child.call("write", {"path": "a.txt", "content": "2\n"})
    await tree.close()
    copies = open_tree.state_dir / "workspaces" / tree.tree_id
    (copies / ("0" * 32) / "files").mkdir(parents=True)
    async with await open_tree.resume(tree.tree_id, MODEL) as taken_up:
        (session,) = await taken_up.main.child_workspaces.list()
        handle = taken_up.session(session.session_id)
        assert "2" in (await handle.call("read", {"path": "a.txt"})).text
        await handle.call("write", {"path": "b.txt", "content": "kept"})
        await handle.cancel("enough")
        assert not [path.name for path in copies.iterdir() if path.name == "0" * 32]
        assert not list(copies.rglob("files"))
        diff = await taken_up.main.child_workspaces.diff(session.session_id)
    assert "+kept" in diff
    assert (root / "a.txt").read_text() == "1\n"


@pytest.mark.covers("OWN3")
@pytest.mark.parametrize("ending", ["failed", "cancelled"])
async def test_what_a_child_wrote_is_kept_however_it_ended(open_tree: Opener, ending: str) -> None:
    """Its model failed, or its parent had enough of it: the patch is there, and can be merged."""

    def model(request: ModelRequest) -> Answer:
        if ending == "failed" and any(isinstance(each, ToolResultMessage) for each in request.messages):
            raise RuntimeError("no more")
        return script_call("write", path="a.txt", content="2\n") if ending == "failed" else by_task(request)

    root = open_tree.workspace
    (root / "a.txt").write_text("1\n")
    async with open_tree(FunctionModel(model)) as tree:
        child = await tree.main.spawn("branch", "a.txt 2\n! sleep 1000", workspace="own")
        if ending == "cancelled":
            await until(tree, CallResolved, session=child.session_id)
            await child.cancel("enough")
        result = await child.result()
        assert result.status.value == ending
        diff = await tree.main.child_workspaces.diff(child.session_id)
        (kept,) = await facts_of(tree, ChangesKept)
        assert (root / "a.txt").read_text() == "1\n"
        merged = await tree.main.child_workspaces.merge(child.session_id)
    assert "-1\n+2\n" in diff
    assert kept.patch_bytes == len(diff.encode())
    assert merged.files == ("a.txt",)
    assert (root / "a.txt").read_text() == "2\n"


@pytest.mark.covers("OWN5")
async def test_of_merges_at_once_one_is_whole_and_the_others_conflict(open_tree: Opener) -> None:
    """They run one after the other: each finds all that an earlier one wrote, and nothing half done."""
    root = open_tree.workspace
    names = [f"{number}.txt" for number in range(12)]
    repository(root, dict.fromkeys(names, "old\n"))
    async with open_tree(MODEL) as tree:
        tasks = ["\n".join(f"{name} by {number}" for name in names) for number in range(3)]
        ended = await tree.main.map("branch", tasks, workspace="own")
        merges = (tree.main.child_workspaces.merge(each.session_id) for each in ended)
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(each) for each in merges]
        outcomes = [each.result() for each in asked]
    assert sorted(each.status for each in outcomes) == ["conflict", "conflict", "merged"]
    assert {len(each.conflicts) for each in outcomes} == {0, len(names)}
    winner = [each.status for each in outcomes].index("merged")
    assert {(root / name).read_text() for name in names} == {f"by {winner}\n"}


@pytest.mark.covers("OWN7")
async def test_agent_and_tree_choose_and_a_worker_needs_none(open_tree: Opener) -> None:
    """The spawn says so first, then the agent, then the tree; a read-only session never gets one."""
    agents: dict[str, Any] = {
        "default": AgentSpec(),
        "alone": AgentSpec(config=AgentConfig(workspace="own")),
        "reader": AgentSpec(config=AgentConfig(workspace="own", workspace_access="ro")),
    }
    async with open_tree(MODEL, agents=agents) as tree:
        cases: tuple[tuple[Any, bool], ...] = (
            ({}, False),
            ({"workspace": "own"}, True),
            ({"agent": "alone"}, True),
            ({"agent": "alone", "workspace": "shared"}, False),
            ({"agent": "reader"}, False),
        )
        for options, own in cases:
            child = await tree.main.spawn("branch", "! true", **options)
            await child.result()
            names = {each.session_id for each in await tree.main.child_workspaces.list()}
            assert (child.session_id in names) == own, options
        with pytest.raises(SpawnRefused, match="a worker only reads"):
            await tree.main.spawn("worker", "look", workspace="own")
        with pytest.raises(SpawnRefused, match="may only read"):
            await tree.main.spawn("branch", "look", agent="reader", workspace="own")
    async with open_tree(MODEL, child_workspace="own") as tree:
        child = await tree.main.spawn("branch", "x 1")
        await child.result()
        assert (await tree.main.child_workspaces.merge(child.session_id)).files == ("x",)
