"""Only the grant of this very adoption is heard, and only for what its kind may ask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import AgentSpec, PermissionDenied, SessionClosed, SessionKind, SessionTree
from sessiontree.contracts.handles.ports import SpawnRequest
from sessiontree.contracts.values.memory import MemoryScope
from sessiontree.models.scripted import ScriptedModel
from sessiontree.runtime.memory.memory_api import MemoryRight
from sessiontree.runtime.scheduling.grants import RIGHTS, Grants
from sessiontree.runtime.scheduling.live_session import LiveSession
from tests.unit.runtime.runtime_fakes import FaultyRuntime

KINDS = st.sampled_from(SessionKind)
STEPS = st.lists(st.sampled_from(["issue", "revoke", "end"]), max_size=12)
Check = Callable[[Grants, str, str], LiveSession]


def live_session_of(kind: SessionKind) -> LiveSession:
    """Return a live session without a tree: grants look at nothing of it."""
    return LiveSession(None, "main/b1", kind, dedicated=False)  # type: ignore[arg-type]


def check(grants: Grants, token: str, right: str) -> LiveSession:
    """Ask as hosts do."""
    return grants.check(token, right)  # type: ignore[arg-type]


def only_the_last_grant_counts(ask: Check, kind: SessionKind, steps: list[str]) -> None:
    """Whatever was issued and revoked: one token counts at most, for its kind's rights, until the end."""
    grants, live = Grants(), live_session_of(kind)
    tokens: list[str] = []
    for step in steps:
        if step == "issue":
            live.epoch += 1
            tokens.append(grants.issue(live, kind))
        elif step == "revoke":
            grants.revoke(live)
        else:
            live.over = True
        current = live.grant
        for token in [*tokens, "", "0" * 32]:
            for right in ("report", "say", "spawn", "look", "direct", "recall", "remember", "forget"):
                counts = token != "" and token == current and not live.over
                try:
                    found = ask(grants, token, right)
                except SessionClosed:
                    assert not counts
                except PermissionDenied:
                    assert counts
                    assert right not in RIGHTS[kind]
                else:
                    assert counts
                    assert found is live
                    assert right in RIGHTS[kind]
    assert len(grants) <= 1


@pytest.mark.covers("C3", "REL-P12", "REL-L50")
@given(KINDS, STEPS)
def test_only_the_last_grant_counts(kind: SessionKind, steps: list[str]) -> None:
    """REL-L34: a token says who asks; nothing else does."""
    only_the_last_grant_counts(check, kind, steps)


def test_planted_bugs_are_seen() -> None:
    """Remembering revoked tokens, or asking for no right, breaks the property."""
    seen: dict[str, LiveSession] = {}

    def remembers(grants: Grants, token: str, right: str) -> LiveSession:
        if token in seen:
            return seen[token]
        seen[token] = check(grants, token, right)
        return seen[token]

    with pytest.raises(AssertionError):
        only_the_last_grant_counts(remembers, SessionKind.BRANCH, ["issue", "revoke"])

    def grants_all(grants: Grants, token: str, right: str) -> LiveSession:
        return check(grants, token, "report")

    with pytest.raises(AssertionError):
        only_the_last_grant_counts(grants_all, SessionKind.WORKER, ["issue"])


async def test_supervisor_says_who_a_session_is_to_memory(tmp_path: Path) -> None:
    """Tree, path, Main's agent and workspace are its own; a Worker may only recall."""
    agents = {"default": AgentSpec(), "other": AgentSpec()}
    rights: list[MemoryRight] = ["recall", "remember", "forget"]
    async with (
        FaultyRuntime(tmp_path / "state") as runtime,
        SessionTree(tmp_path, model=ScriptedModel(["hello"] * 9), agents=agents, runtime=runtime) as tree,
    ):
        await tree.main.send("begin")
        supervisor = runtime.local.core
        controller = supervisor.tree(tree.tree_id)
        worker = LiveSession(controller, "main/b1/w7", SessionKind.WORKER, dedicated=False)
        token = supervisor.grants.issue(worker, SessionKind.WORKER)
        for live, held in ((controller.live_sessions["main"], 3), (worker, 1)):
            answers = (await supervisor.resolve_grants([(live.grant, right) for right in rights])).answers
            scope = MemoryScope(tree.tree_id, live.session, "default", str(tmp_path))
            assert list(answers[:held]) == [scope] * held
            assert [type(answer) for answer in answers[held:]] == [PermissionDenied] * (3 - held)
        supervisor.grants.revoke(worker)
        unknown = await supervisor.resolve_grants([(token, "recall"), ("", "recall"), ("f" * 32, "forget")])
        assert [type(answer) for answer in unknown.answers] == [SessionClosed] * 3


@pytest.mark.covers("GRN2")
async def test_worker_and_a_freed_host_get_nothing(tmp_path: Path) -> None:
    """No message and no child comes of a Worker's grant, of a revoked one, or of a made-up one."""
    async with (
        FaultyRuntime(tmp_path / "state") as runtime,
        SessionTree(tmp_path, model=ScriptedModel(["hello"] * 9), runtime=runtime) as tree,
    ):
        await tree.main.send("begin")
        supervisor = runtime.local.core
        live = supervisor.tree(tree.tree_id).live_sessions["main"]
        old = live.grant
        before = await runtime.local.supervisor.last_seq(tree.tree_id)
        for token in ("", "f" * 32):
            with pytest.raises(SessionClosed):
                await runtime.local.services.say(token, "psst")
            with pytest.raises(SessionClosed):
                await runtime.local.services.spawn(token, SpawnRequest(SessionKind.WORKER, "go"), "key")
        assert live.link is not None
        live.link.declare_lost("the host was taken away", to_blame=False)
        with pytest.raises(SessionClosed):
            await runtime.local.services.say(old, "psst")
        assert await runtime.local.supervisor.last_seq(tree.tree_id) == before
        assert await tree.main.send("and now?") == "hello"
