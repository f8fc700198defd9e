"""An owner's session looks at the runtime, patches the configuration, and has the hosts replaced."""

from __future__ import annotations

import asyncio
import hashlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    ConfigError,
    ExecutionError,
    FunctionModel,
    ModelRequest,
    PermissionDenied,
    PolicyConfig,
    SessionClosed,
    SessionHandle,
    SessionTree,
    ValidationError,
    script_call,
)
from sessiontree.contracts.facts.session_facts import CallIntended, MessageReceived
from sessiontree.models.answers import Answer
from sessiontree.policy.settings import ToolPolicy
from sessiontree.version import VERSION
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of
from tests.behaviour.tree_fixtures import Opener

EVERYTHING = PolicyConfig(tools=ToolPolicy(allow=("*",)))
TEXT = """\
# Mine, keep it.
approvals = "smart"

[limits]
max_turns = 40  # enough

[models.home]
model = "openai:gpt-5"
base_url = "https://me:pa55word@models.example/v1?token=s3cret"
key_file = "/srv/keys/home"
"""


def quiet(request: ModelRequest) -> Answer:
    """Reply with the session's name."""
    return f"heard in {request.session_id}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The owner's configuration."""
    place = tmp_path / "owner" / "sessiontree.toml"
    place.parent.mkdir(mode=0o700)
    place.write_text(TEXT)
    place.chmod(0o600)
    return place


async def gateway(session: SessionHandle, action: str, **arguments: Any) -> Any:
    """Return what the tool says."""
    return (await session.call("gateway", {"action": action, **arguments})).output


def hash_of(file: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def content_of(file: Path) -> str:
    """Return the text of a file that is alone in its folder, and that only its owner may read."""
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    assert file.stat().st_mode & 0o777 == 0o600
    return file.read_text()


@pytest.mark.covers("S14", "A39")
@pytest.mark.on_ray
async def test_owner_sees_the_runtime_and_patches_the_configuration(open_tree: Opener, file: Path) -> None:
    """Secrets are not shown; comments and hidden values stay; a patch against another base is refused."""
    options: Any = {"policy": EVERYTHING, "configuration": file, "approvals": "auto"}
    async with open_tree(FunctionModel(quiet), **options) as tree:
        seen = await gateway(tree.main, "status")
        assert seen["sessions"] >= seen["trees"] >= 1
        assert seen["model_requests"] == 0
        assert (seen["backend"], seen["version"]) == (open_tree.backend, VERSION)
        assert sum(pool["occupied"] for pool in seen["pools"]) >= 1
        assert seen["memory_bytes"] > 2**20
        shown = await gateway(tree.main, "config.get")
        assert shown["hash"] == hash_of(file)
        assert shown["config"]["limits"] == {"max_turns": 40}
        assert shown["config"]["models"]["home"] == {
            "model": "openai:gpt-5",
            "base_url": "https://models.example/v1 (hidden)",
            "key_file": "(hidden)",
        }
        patch = {"limits": {"max_turns": 50}, "approvals": None, "agent": "clerk"}
        done = await gateway(tree.main, "config.patch", base_hash=shown["hash"], patch=patch)
        assert done["at_once"] == []
        assert done["at_next_start"] == done["changed"] == ["agent", "approvals", "limits"]
        assert done["hash"] == hash_of(file)
        written = content_of(file)
        assert "# Mine, keep it." in written
        assert "# enough" in written
        assert tomllib.loads(written) == {
            "agent": "clerk",
            "limits": {"max_turns": 50},
            "models": tomllib.loads(TEXT)["models"],
        }
        with pytest.raises(ValidationError, match=done["hash"]):
            await gateway(tree.main, "config.patch", base_hash=shown["hash"], patch={"agent": "late"})
        assert content_of(file) == written


WRONG = [
    ({"limits": {"max_turns": "many"}}, "limits.max_turns"),
    ({"limit": {}}, "limit"),
    ({"models": {"home": {"api_key": "sk-123"}}}, "models.home"),
    ({"models": {"home": {"key_file": "(hidden)"}}}, "hidden"),
    ({"model": ["a", None]}, "null"),
    ({"approvals": "owner"}, "approvals"),
]


@pytest.mark.covers("S14")
async def test_wrong_patch_names_the_member_and_changes_nothing(open_tree: Opener, file: Path) -> None:
    """Whatever is wrong; a correct one afterwards applies, also where a link leads to the file."""
    link = file.parent.parent / "link.toml"
    link.symlink_to(file)
    async with open_tree(
        FunctionModel(quiet), policy=EVERYTHING, configuration=link, approvals="auto"
    ) as tree:
        base = (await gateway(tree.main, "config.get", section="limits"))["hash"]
        for patch, named in WRONG:
            with pytest.raises(ValidationError, match=named):
                await gateway(tree.main, "config.patch", base_hash=base, patch=patch)
            assert content_of(file) == TEXT
        with pytest.raises(ValidationError, match="base_hash"):
            await gateway(tree.main, "config.patch", patch={"agent": "clerk"})
        with pytest.raises(ValidationError, match="section"):
            await gateway(tree.main, "restart", section="limits")
        schema = await gateway(tree.main, "config.schema", section="approvals")
        assert list(schema["properties"]) == ["approvals"]
        await gateway(tree.main, "config.patch", base_hash=base, patch={"agent": "clerk"})
        assert tomllib.loads(content_of(file))["agent"] == "clerk"
        assert link.is_symlink()


@pytest.mark.covers("S14", "A35")
async def test_who_may_not_reach_the_runtime(open_tree: Opener) -> None:
    """No tool unless it is named; no configuration unless one was given, and none in the workspace."""
    with pytest.raises(ConfigError, match="workspace"):
        open_tree(FunctionModel(quiet), configuration=open_tree.workspace / "sessiontree.toml")
    async with open_tree(FunctionModel(quiet), policy=EVERYTHING, approvals="auto") as tree:
        with pytest.raises(ExecutionError, match="without a configuration"):
            await gateway(tree.main, "config.get")
        worker = await tree.main.spawn("worker", "wait", stays_open=False)
        with pytest.raises((PermissionDenied, ExecutionError, SessionClosed)):
            await gateway(worker, "status")
    async with open_tree(FunctionModel(quiet), approvals="auto") as tree:
        with pytest.raises((PermissionDenied, ExecutionError)):
            await gateway(tree.main, "status")


async def hosts_of(tree: SessionTree, *, occupied: bool = False) -> set[str]:
    """Return the names of the runtime's hosts, or of those at which a session is."""
    rows = await tree._supervisor.actors()
    hosts = (row for row in rows if row.role not in {"supervisor", "gateway", "memory"})
    return {row.name for row in hosts if row.session is not None or not occupied}


@pytest.mark.covers("S14")
@pytest.mark.on_ray
async def test_tree_with_a_waiting_child_goes_on_after_a_restart(open_tree: Opener) -> None:
    """No session is at its host of before; each message is answered once, and the child still reports."""

    def model(request: ModelRequest) -> Answer:
        said = request.messages[-1].text
        if request.session_id == "main" and said == "restart":
            return script_call("gateway", action="restart")
        return f"{request.session_id} heard {len(request.messages)}"

    async with open_tree(FunctionModel(model), policy=EVERYTHING, approvals="auto") as tree:
        branch = await tree.main.spawn("branch", "wait", stays_open=True)
        await branch.send("first")
        # A host that starts just then stays, so only those that served a session must go.
        before = await hosts_of(tree, occupied=True)
        await tree.main.send("restart")
        async with asyncio.timeout(PATIENCE_S):
            while before & await hosts_of(tree):  # noqa: ASYNC110 - no event says that a host is gone
                await asyncio.sleep(0.05)
        await branch.send("second")
        await tree.main.send("and you?")
        assert before
        assert await hosts_of(tree) - before
        texts = [
            fact.message.text for fact in await facts_of(tree, MessageReceived, session=branch.session_id)
        ]
        assert [text for text in texts if text in {"first", "second"}] == ["first", "second"]
        calls = [fact for fact in await facts_of(tree, CallIntended) if fact.call.tool == "gateway"]
        assert len(calls) == 1
