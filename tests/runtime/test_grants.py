"""Only the grant of this very adoption is heard, and only for what its kind may ask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import AgentSpec, PermissionDenied, SessionClosed, SessionKind, SessionTree
from sessiontree.contracts.memory import MemoryScope
from sessiontree.contracts.ports import SpawnRequest
from sessiontree.models.scripted import ScriptedModel
from sessiontree.runtime.grants import RIGHTS, Grants
from sessiontree.runtime.live_session import Seat
from sessiontree.runtime.memory_protocol import MemoryRight
from tests.runtime.faulty import FaultyRuntime

KINDS = st.sampled_from(SessionKind)
STEPS = st.lists(st.sampled_from(["issue", "revoke", "end"]), max_size=12)
Check = Callable[[Grants, str, str], Seat]


def seat_of(kind: SessionKind) -> Seat:
    """Return a seat without a tree: grants look at nothing of it."""
    return Seat(None, "main/b1", kind, dedicated=False)  # type: ignore[arg-type]


def check(grants: Grants, token: str, right: str) -> Seat:
    """Ask as hosts do."""
    return grants.check(token, right)  # type: ignore[arg-type]


def only_the_last_grant_counts(ask: Check, kind: SessionKind, steps: list[str]) -> None:
    """Whatever was issued and revoked: one token counts at most, for its kind's rights, until the end."""
    grants, seat = Grants(), seat_of(kind)
    tokens: list[str] = []
    for step in steps:
        if step == "issue":
            seat.epoch += 1
            tokens.append(grants.issue(seat, kind))
        elif step == "revoke":
            grants.revoke(seat)
        else:
            seat.over = True
        current = seat.grant
        for token in [*tokens, "", "0" * 32]:
            for right in ("report", "say", "spawn", "recall", "remember", "forget"):
                counts = token != "" and token == current and not seat.over
                try:
                    found = ask(grants, token, right)
                except SessionClosed:
                    assert not counts
                except PermissionDenied:
                    assert counts
                    assert right not in RIGHTS[kind]
                else:
                    assert counts
                    assert found is seat
                    assert right in RIGHTS[kind]
    assert len(grants) <= 1


@given(KINDS, STEPS)
def test_only_the_last_grant_counts(kind: SessionKind, steps: list[str]) -> None:
    """REL-L34: a token says who asks; nothing else does."""
    only_the_last_grant_counts(check, kind, steps)


def test_planted_bugs_are_seen() -> None:
    """Remembering revoked tokens, or asking for no right, breaks the property."""
    seen: dict[str, Seat] = {}

    def remembers(grants: Grants, token: str, right: str) -> Seat:
        if token in seen:
            return seen[token]
        seen[token] = check(grants, token, right)
        return seen[token]

    with pytest.raises(AssertionError):
        only_the_last_grant_counts(remembers, SessionKind.BRANCH, ["issue", "revoke"])

    def grants_all(grants: Grants, token: str, right: str) -> Seat:
        return check(grants, token, "report")

    with pytest.raises(AssertionError):
        only_the_last_grant_counts(grants_all, SessionKind.WORKER, ["issue"])


async def test_the_supervisor_says_who_a_session_is_to_memory(tmp_path: Path) -> None:
    """Tree, path, Main's agent and workspace are its own; a Worker may only recall."""
    agents = {"default": AgentSpec(), "other": AgentSpec()}
    rights: list[MemoryRight] = ["recall", "remember", "forget"]
    async with (
        FaultyRuntime(tmp_path / "state") as runtime,
        SessionTree(tmp_path, model=ScriptedModel(["hello"] * 9), agents=agents, runtime=runtime) as tree,
    ):
        await tree.main.send("begin")
        supervisor = runtime.local.supervisor
        keeper = supervisor.tree(tree.tree_id)
        worker = Seat(keeper, "main/b1/w7", SessionKind.WORKER, dedicated=False)
        token = supervisor.grants.issue(worker, SessionKind.WORKER)
        for seat, held in ((keeper.seats["main"], 3), (worker, 1)):
            answers = await supervisor.whose([(seat.grant, right) for right in rights])
            scope = MemoryScope(tree.tree_id, seat.session, "default", str(tmp_path))
            assert answers[:held] == [scope] * held
            assert [type(answer) for answer in answers[held:]] == [PermissionDenied] * (3 - held)
        supervisor.grants.revoke(worker)
        unknown = await supervisor.whose([(token, "recall"), ("", "recall"), ("f" * 32, "forget")])
        assert [type(answer) for answer in unknown] == [SessionClosed] * 3


async def test_a_worker_and_a_freed_host_get_nothing(tmp_path: Path) -> None:
    """No message and no child comes of a Worker's grant, of a revoked one, or of a made-up one."""
    async with (
        FaultyRuntime(tmp_path / "state") as runtime,
        SessionTree(tmp_path, model=ScriptedModel(["hello"] * 9), runtime=runtime) as tree,
    ):
        await tree.main.send("begin")
        supervisor = runtime.local.supervisor
        seat = supervisor.tree(tree.tree_id).seats["main"]
        old = seat.grant
        before = runtime.local.owner.last_seq(tree.tree_id)
        for token in ("", "f" * 32):
            with pytest.raises(SessionClosed):
                await supervisor.say(token, "psst")
            with pytest.raises(SessionClosed):
                await supervisor.spawn(token, SpawnRequest(SessionKind.WORKER, "go"), "key")
        assert seat.link is not None
        seat.link.condemn("the host was taken away", to_blame=False)
        with pytest.raises(SessionClosed):
            await supervisor.say(old, "psst")
        assert runtime.local.owner.last_seq(tree.tree_id) == before
        assert await tree.main.send("and now?") == "hello"
