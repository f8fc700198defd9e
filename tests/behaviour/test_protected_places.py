"""What decides which code runs outside the workspace: file tools ask, commands find it read-only."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    WRITER,
    ApplyPatchPolicy,
    ApprovalRequest,
    PermissionTier,
    PolicyConfig,
    ScriptedModel,
    SessionTree,
    ToolContext,
    schema_tool,
    script_call,
    tool,
)
from sessiontree.contracts.facts.session_facts import ApprovalWanted
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.models.answers import Answer
from sessiontree_tools.files.write import Write
from tests.behaviour.fact_fixtures import asked, facts_of, results
from tests.behaviour.tree_fixtures import Opener

PLACES = {
    "a hook": ".git/hooks/pre-commit",
    "a new folder of hooks": "sub/.git/hooks/pre-commit",
    "settings": ".git/config",
    "by dots": "sub/../.git/config",
    "by a link": "link/config",
    "by a link that is absolute": "absolute/hooks/pre-push",
    "by case": "sub/.GIT/Config",
    "what names the repository": "sub/.git",
    "a submodule's": ".git/modules/lib/config",
    "a bare one's": "bare.git/hooks/update",
    "what git continues with": ".git/rebase-merge/git-rebase-todo",
    "a submodule's sequence": ".git/modules/lib/sequencer/todo",
    "mails to apply of a bare one": "bare.git/Rebase-Apply/next",
    "one kept elsewhere": "kept/config",
    "what makes a folder one": "almost/HEAD",
    "hooks kept in the worktree": ".githooks/pre-commit",
    "settings kept in the worktree": "shared.gitconfig",
}
"""Ways to name a protected place, all of the workspace of :func:`repository`."""


def git(*words: str, cwd: Path) -> str:
    """Run git outside, with nobody's settings but the repository's."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(cwd),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    return subprocess.run(
        ["git", *words], cwd=cwd, env=env, check=True, capture_output=True, text=True
    ).stdout


def repository(root: Path) -> None:
    """Make the workspace a repository that keeps hooks and settings in odd places."""
    git("init", "-q", "-b", "main", cwd=root)
    for name, value in (("user.email", "a@example.org"), ("user.name", "A"), ("core.hooksPath", ".githooks")):
        git("config", name, value, cwd=root)
    git("config", "include.path", "../shared.gitconfig", cwd=root)
    (root / "sub").mkdir()
    (root / "a.txt").write_text("one\n")
    (root / ".githooks").mkdir()
    (root / "shared.gitconfig").write_text("[color]\n\tui = never\n")
    (root / "link").symlink_to(".git")
    (root / "absolute").symlink_to(root / ".git")
    git("init", "-q", "--bare", "bare.git", cwd=root)
    git("init", "-q", "--separate-git-dir", str(root / "kept"), str(root / "apart"), cwd=root)
    git("init", "-q", "--bare", str(root / ".git/modules/lib"), cwd=root)
    (root / "almost/objects").mkdir(parents=True)
    (root / "almost/refs").mkdir()


@tool(tier=PermissionTier.WORKSPACE, capabilities=[WRITER])
def sly(path: str, ctx: ToolContext) -> str:
    """Write without saying which parameter names a file."""
    return ctx.require(WRITER).write(path, b"sly").path


@tool(tier=PermissionTier.WORKSPACE, capabilities=[WRITER], changes=["paths"])
def several(paths: list[str], ctx: ToolContext) -> int:
    """Write some files."""
    return sum(ctx.require(WRITER).write(path, b"several").bytes for path in paths)


@schema_tool(
    {"type": "object", "properties": {"path": {"type": "string"}}},
    tier=PermissionTier.WORKSPACE,
    capabilities=[WRITER],
    changes="path",
)
def gone(params: dict[str, Any], ctx: ToolContext) -> str:
    """Remove a file."""
    ctx.require(WRITER).remove(params["path"])
    return "gone"


@tool(tier=PermissionTier.ELEVATED, capabilities=[WRITER])
def any_file(path: str, ctx: ToolContext) -> str:
    """Write any file, after a yes."""
    return ctx.require(WRITER).write(path, b"any").path


TOOLS = (sly, several, gone, any_file)


async def one(tree: SessionTree) -> tuple[asyncio.Task[str], list[ToolResultMessage]]:
    """Let Main do what its model says, until it waits for a person."""
    going = asyncio.ensure_future(_said(tree))
    await asked(tree)
    return going, results(tree, "main")


async def _said(tree: SessionTree) -> str:
    return await tree.main.send("go")


@pytest.mark.short(4)
@pytest.mark.slow
@pytest.mark.parametrize("where", PLACES)
async def test_writing_to_a_protected_place_asks_and_a_yes_performs_it(open_tree: Opener, where: str) -> None:
    """The tier shown is Elevated, whatever the spelling; before the yes nothing has changed."""
    root, path = open_tree.workspace, PLACES[where]
    repository(root)
    before = _content(root / path)
    async with open_tree(ScriptedModel([script_call("write", path=path, content="# new\n"), "done"])) as tree:
        going, _ = await one(tree)
        (request,) = tree.approvals.pending()
        assert (request.request.tier, request.request.arguments["path"]) == ("Elevated", path)
        assert _content(root / path) == before
        await request.approve()
        assert await going == "done"
        assert [message.is_error for message in results(tree, "main")] == [False], results(tree, "main")
        assert _content(root / path) == "# new\n"


@pytest.mark.on_ray
async def test_no_leaves_it_as_it_was(open_tree: Opener) -> None:
    """The model reads who said no."""
    repository(open_tree.workspace)
    before = _content(open_tree.workspace / ".git/config")
    edit = script_call("edit", path=".git/config", old_text="[core]", new_text="[core]\n\tfsmonitor = ./evil")
    async with open_tree(ScriptedModel([edit, "done"])) as tree:
        going, _ = await one(tree)
        await tree.approvals.pending()[0].deny("no")
        assert await going == "done"
        assert "denied" in results(tree, "main")[0].text
    assert _content(open_tree.workspace / ".git/config") == before


@pytest.mark.short(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        {"path": "a.txt", "content": "x"},
        {"path": "git/config", "content": "x"},
        {"path": ".gitignore", "content": "x"},
        {"path": ".gitattributes", "content": "x"},
        {"path": ".github/workflows/ci.yml", "content": "x"},
        {"path": "sub/hooks/config", "content": "x"},
        {"path": ".git/description", "content": "x"},
        {"path": "src/HEAD", "content": "x"},
    ],
    ids=lambda words: words["path"],
)
async def test_everything_else_is_written_as_before(open_tree: Opener, words: dict[str, Any]) -> None:
    """No question, Workspace as ever; attributes choose among programs that settings name, and name none."""
    repository(open_tree.workspace)
    async with open_tree(ScriptedModel([script_call("write", **words), "done"]), channel=None) as tree:
        assert await tree.main.send("go") == "done"
        assert not results(tree, "main")[0].is_error
        assert not await facts_of(tree, ApprovalWanted)


@pytest.mark.short(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("asking", "changed"),
    [
        (script_call("several", paths=["a.txt", ".git/config"]), ".git/config"),
        (script_call("gone", path=".git/config"), ".git/config"),
        (script_call("gone", path="link"), ""),
        (script_call("any_file", path=".git/config"), ".git/config"),
    ],
    ids=["lists", "schema", "a link itself", "always Elevated"],
)
async def test_every_tool_that_names_its_files_asks(open_tree: Opener, asking: Any, changed: str) -> None:
    """Functions, schemas, several paths at once, removal; a link to a protected place is asked about too."""
    root = open_tree.workspace
    repository(root)
    async with open_tree(ScriptedModel([asking, "done"]), tools=TOOLS) as tree:
        going, _ = await one(tree)
        before = _content(root / ".git/config")
        await tree.approvals.pending()[0].approve()
        assert await going == "done"
        assert [message.is_error for message in results(tree, "main")] == [False], results(tree, "main")
        assert (_content(root / ".git/config") != before) is bool(changed)


@pytest.mark.on_ray
@pytest.mark.covers("S5")
async def test_patch_that_reaches_a_protected_place_asks(open_tree: Opener) -> None:
    """Its paths are inside a text; also one to which a file moves counts. A yes performs all of it."""
    root = open_tree.workspace
    repository(root)
    patch = (
        "*** Begin Patch\n*** Add File: b.txt\n+two\n"
        "*** Update File: a.txt\n*** Move to: .git/hooks/pre-push\n@@\n-one\n+new\n*** End Patch"
    )
    always = PolicyConfig(apply_patch=ApplyPatchPolicy(offer="always"))
    asking = script_call("apply_patch", patch=patch)
    async with open_tree(ScriptedModel([asking, "done"]), policy=always) as tree:
        going, _ = await one(tree)
        (request,) = tree.approvals.pending()
        assert request.request.tier == "Elevated"
        assert not (root / "b.txt").exists()
        await request.approve()
        assert await going == "done"
        assert [message.is_error for message in results(tree, "main")] == [False], results(tree, "main")
    assert _content(root / ".git/hooks/pre-push") == "new\n"
    assert _content(root / "b.txt") == "two\n"
    assert not (root / "a.txt").exists()


class UnsureWrite(Write):
    """Writes a file, and can't tell which before it runs."""

    name = "unsure_write"

    def list_changed_paths(self, arguments: Mapping[str, Any]) -> Collection[str]:
        """Fail."""
        raise RuntimeError("no idea")


async def test_tool_that_fails_to_tell_its_files_asks_and_reaches_no_protected_place(
    open_tree: Opener,
) -> None:
    """A person saw no place, so a yes allows none; any other file is written."""
    repository(open_tree.workspace)
    before = _content(open_tree.workspace / ".git/config")
    script: list[Answer] = [
        script_call("unsure_write", path="b.txt", content="b"),
        script_call("unsure_write", path=".git/config", content="evil"),
        "done",
    ]
    asked_for = []

    def approve(request: ApprovalRequest) -> bool:
        asked_for.append(request.tier)
        return True

    tree = open_tree(ScriptedModel(script), tools=[UnsureWrite()], approver=approve)
    async with tree:
        assert await tree.main.send("go") == "done"
        written, refused = results(tree, "main")
    assert asked_for == ["Elevated", "Elevated"]
    assert not written.is_error
    assert "protected" in refused.text
    assert _content(open_tree.workspace / "b.txt") == "b"
    assert _content(open_tree.workspace / ".git/config") == before


async def test_tool_that_names_no_files_is_refused_there(open_tree: Opener) -> None:
    """The handle itself refuses, by what the path resolves to: no tool writes there unasked."""
    repository(open_tree.workspace)
    before = _content(open_tree.workspace / ".git/config")
    script: list[Answer] = [
        [script_call("sly", path=".git/config"), script_call("sly", path="b.txt")],
        "done",
    ]
    async with open_tree(ScriptedModel(script), tools=TOOLS) as tree:
        assert await tree.main.send("go") == "done"
        refused, written = results(tree, "main")
        assert "it is protected (it decides which programs git runs)" in refused.text
        assert refused.details == {"code": "permission_denied", "status": 403, "tier": "Elevated"}
        assert not written.is_error
    assert _content(open_tree.workspace / ".git/config") == before


@pytest.mark.parametrize("swapped", ["before the yes", "in the middle"])
async def test_yes_is_bound_to_the_place_that_was_asked_about(open_tree: Opener, swapped: str) -> None:
    """A link that leads to another protected place by then: nothing is written, and it says so."""
    root = open_tree.workspace
    repository(root)
    asking = script_call("write", path="link/config", content="# new\n")
    async with open_tree(ScriptedModel([asking, "done"])) as tree:
        going, _ = await one(tree)
        (root / "link").unlink()
        (root / "link").symlink_to("kept" if swapped == "before the yes" else "sub")
        await tree.approvals.pending()[0].approve()
        assert await going == "done"
        (message,) = results(tree, "main")
        assert message.is_error
        assert "the files it names have changed since; ask again" in message.text
    assert "# new" not in _content(root / "kept/config") + _content(root / ".git/config")
    assert not (root / "sub/config").exists()


async def test_programs_own_call_asks_too(open_tree: Opener) -> None:
    """``handle.call`` takes the same gates."""
    repository(open_tree.workspace)
    async with open_tree(ScriptedModel(["done"])) as tree:
        calling = asyncio.ensure_future(tree.main.call("write", {"path": ".git/hooks/x", "content": "x"}))
        (request,) = await asked(tree)
        assert request.request.tier == "Elevated"
        await request.approve()
        await calling
    assert (open_tree.workspace / ".git/hooks/x").read_text() == "x"


COMMITS = """
set -e
echo two >> a.txt
git add a.txt
git -c user.email=a@example.org -c user.name=A commit -q -m two
git branch other
git checkout -q other
git tag v1
git stash list
git checkout -q main
git branch -D other
git merge -q v1
git rebase -q v1
git reset -q --hard HEAD~0
git gc -q
git log --oneline | wc -l
"""


@pytest.mark.slow
async def test_git_works_in_commands(open_tree: Opener) -> None:
    """Adding, committing, branching, merging, rebasing, collecting garbage; the repository stays sound."""
    root = open_tree.workspace
    repository(root)
    git("add", "a.txt", cwd=root)
    git("commit", "-q", "-m", "one", cwd=root)
    async with open_tree(ScriptedModel([script_call("exec", command=COMMITS), "done"])) as tree:
        await tree.main.send("go")
        (message,) = results(tree, "main")
        assert message.text.splitlines()[-1] == "2", message.text
    assert git("log", "--format=%s", cwd=root).split() == ["two", "one"]
    git("fsck", "--strict", cwd=root)


ATTEMPTS = {
    "a hook": "echo x > .git/hooks/pre-commit",
    "settings": "echo x >> .git/config",
    "settings by a link": "echo x >> link/config",
    "by git itself": "git config core.fsmonitor ./evil",
    "the folder of hooks": "mv .git/hooks .git/h; mkdir .git/hooks; echo x > .git/hooks/pre-commit",
    "the repository": "mv .git .g; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit",
    "no hooks any more": "rm -rf .git/hooks; rm .git/config; ls -d .git/hooks .git/config",
    "a hard link": "ln .git/config l && echo x >> l",
    "hooks of the worktree": "echo x > .githooks/pre-commit",
    "the folder of those": "mv .githooks g; mkdir .githooks; echo x > .githooks/pre-commit",
    "settings of the worktree": "echo x >> shared.gitconfig",
    "a bare one": "echo x > bare.git/hooks/update",
    "one kept elsewhere": "echo x >> kept/config",
    "what leads to it": "rm apart/.git; echo 'gitdir: ../sub' > apart/.git",
    "a submodule": "echo x >> .git/modules/lib/config",
    "attributes": "echo x > .git/info/attributes",
    "other settings": "echo ../sub > .git/commondir",
    "a link to it": "rm dotgit/.git; mkdir -p dotgit/.git/hooks; echo x > dotgit/.git/hooks/pre-commit",
}
"""What a command may try; afterwards everything is as it was."""


@pytest.mark.short(4)
@pytest.mark.slow
@pytest.mark.parametrize("what", ATTEMPTS)
@pytest.mark.on_ray
async def test_commands_find_protected_places_read_only(open_tree: Opener, what: str) -> None:
    """Whatever the command says of it, and as far as it got."""
    root = open_tree.workspace
    repository(root)
    (root / "dotgit").mkdir()
    (root / "dotgit/.git").symlink_to("../kept")
    before = _standing(root)
    async with open_tree(ScriptedModel([script_call("exec", command=ATTEMPTS[what]), "done"])) as tree:
        await tree.main.send("go")
        (message,) = results(tree, "main")
    assert _standing(root) == before, message.text


@pytest.mark.slow
@pytest.mark.covers("WSP13")
async def test_what_a_person_has_begun_is_continued_as_it_was(open_tree: Opener) -> None:
    """A line that names a command, in what is left of a rebase, would run when the person continues."""
    root = open_tree.workspace
    repository(root)
    for name in ("1", "2", "3"):
        (root / name).write_text(name)
        git("add", name, cwd=root)
        git("commit", "-q", "-m", name, cwd=root)
    git("worktree", "add", "-q", "-b", "side", "tree", cwd=root)
    begin = ("-c", "sequence.editor=sed -i 1s/pick/edit/", "rebase", "-q", "-i", "HEAD~2")
    for place in (root, root / "tree"):
        git(*begin, cwd=place)
    todo = "rebase-merge/git-rebase-todo"
    lists = [root / ".git" / todo, root / ".git/worktrees/tree" / todo]
    before = [each.read_text() for each in lists]
    script: list[Answer] = [
        [
            script_call("exec", command=f"echo 'exec touch /tmp/x' >> {each.relative_to(root)}")
            for each in lists
        ],
        script_call("exec", command="mv .git/rebase-merge .git/gone; rm -rf .git/rebase-merge"),
        script_call(
            "exec", command="git init -q n && cd n && git am </dev/null; mkdir .git/sequencer && echo begun"
        ),
        "done",
    ]
    async with open_tree(ScriptedModel(script)) as tree:
        await tree.main.send("go")
        texts = [message.text for message in results(tree, "main")]
    assert [each.read_text() for each in lists] == before, texts
    assert "begun" in texts[-1]
    git("rebase", "--continue", cwd=root)
    assert not lists[0].exists()


@pytest.mark.slow
@pytest.mark.on_ray
async def test_what_a_command_makes_is_protected_from_the_next_on(open_tree: Opener) -> None:
    """A repository of its own is its own to fill once; where hooks are missing a folder stays empty."""
    root = open_tree.workspace
    git("init", "-q", "--template=", cwd=root)
    assert not (root / ".git/hooks").exists()
    script: list[Answer] = [
        script_call("exec", command="mkdir -p .git/hooks && echo x > .git/hooks/pre-commit"),
        script_call("exec", command="git init -q new && echo x > new/.git/hooks/first"),
        script_call("exec", command="echo x > new/.git/hooks/second"),
        "done",
    ]
    async with open_tree(ScriptedModel(script)) as tree:
        await tree.main.send("go")
        texts = [message.text for message in results(tree, "main")]
    assert ["Read-only" in text for text in texts] == [True, False, True], texts
    assert list((root / ".git/hooks").iterdir()) == []
    assert {path.name for path in (root / "new/.git/hooks").iterdir()} >= {"first"}
    assert not (root / "new/.git/hooks/second").exists()


async def test_what_was_put_back_is_said(open_tree: Opener) -> None:
    """The model reads that its change did not last, the journal which."""
    repository(open_tree.workspace)
    script: list[Answer] = [script_call("exec", command="echo ../sub > .git/commondir"), "done"]
    async with open_tree(ScriptedModel(script)) as tree:
        await tree.main.send("go")
        (message,) = results(tree, "main")
    assert message.text == "(protected and put back as it was: .git/commondir)"
    details: Any = message.details
    assert details["details"]["put_back"] == [".git/commondir"]


def _content(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def _standing(root: Path) -> dict[str, str]:
    """Return every protected file and link of the workspace, with what it says."""
    tops = [".githooks", "shared.gitconfig", "apart/.git", "dotgit"]
    for repository_ in (".git", "bare.git", "kept", ".git/modules/lib"):
        tops += [f"{repository_}/{name}" for name in ("hooks", "config", "info", "commondir")]
    found = {}
    for top in tops:
        for path in [root / top, *sorted((root / top).rglob("*"))]:
            if path.is_symlink():
                found[str(path.relative_to(root))] = f"-> {path.readlink()}"
            elif path.is_file():
                found[str(path.relative_to(root))] = path.read_text()
    return found
