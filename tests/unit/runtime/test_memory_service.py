"""Memory answers for whom the supervisor says a grant represents, and only while it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import (
    MemoryFailed,
    PermissionDenied,
    SessionClosed,
    ValidationError,
)
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.values.memory import MemoryHit, MemoryQuery, MemoryScope, NewRecord, Selection
from sessiontree.runtime.memory.memory_api import Ended, MemoryRight
from sessiontree.runtime.memory.memory_service import MemoryGrants, MemoryService
from sessiontree.runtime.scheduling.grants import Grants
from sessiontree.runtime.scheduling.live_session import LiveSession
from tests.system.house.error_fixtures import has_cause
from tests.unit.runtime.memory_fakes import ListStore, Supervisor

SCOPE = MemoryScope("t1", "main/b2", "default", "/workspace")
END = Ended("t1", "default", "/workspace", 7)
RECORD = NewRecord("the sky is blue")


def anybody(token: str, right: MemoryRight) -> MemoryScope:
    """Let every grant stand for one session."""
    return SCOPE


def core_over(store: ListStore, supervisor: Supervisor) -> MemoryService:
    """Return a memory over a store that opens at once."""

    async def open_store() -> ListStore:
        return store

    return MemoryService("/memory", open_store, supervisor)


async def asked(core: MemoryService, name: str, token: str) -> object:
    """Ask one thing of each sort, as a host would."""
    selection = Selection(ids=("x",))
    given: dict[str, tuple[Any, ...]] = {
        "search": (MemoryQuery("sky"),),
        "select": (selection, 5),
        "store": ((RECORD,), "key"),
        "forget": (selection, "key"),
    }
    return await getattr(core, name)(token, *given[name])


ASKED: dict[str, MemoryRight] = {
    "search": "recall",
    "select": "recall",
    "store": "remember",
    "forget": "forget",
}
STEPS = st.lists(st.sampled_from(["issue", "revoke", "end", *ASKED]), min_size=2, max_size=20)
Make = Callable[[ListStore, Supervisor], MemoryService]


async def only_what_counts_is_answered(make: Make, kind: SessionKind, steps: list[str]) -> None:
    """Whatever was issued, revoked and asked: a grant is heard while it counts, for its kind's rights."""
    live = LiveSession(None, "main/b2", kind, dedicated=False)  # type: ignore[arg-type]
    store = ListStore()

    def check(token: str, right: MemoryRight) -> MemoryScope:
        return SCOPE if grants.check(token, right) is live else MemoryScope("?", "?", "?", "?")

    core = make(store, Supervisor(check))
    grants = Grants(core.revoked)
    tokens = ["", "0" * 32]
    for step in steps:
        if step == "issue":
            live.epoch += 1
            tokens.append(grants.issue(live, kind))
        elif step == "revoke":
            grants.revoke(live)
        elif step == "end":
            live.over = True
            grants.revoke(live)
        else:
            for token in tokens:
                before = len(store.asked)
                counts = token == live.grant != "" and not live.over
                may = counts and (kind is not SessionKind.WORKER or ASKED[step] == "recall")
                try:
                    await asked(core, step, token)
                except PermissionDenied:
                    assert counts
                    assert not may
                except SessionClosed:
                    assert not counts
                else:
                    assert may
                assert len(store.asked) - before == may
                assert all(scope == SCOPE for _, scope in store.asked)
    await core.close()


@given(st.sampled_from(SessionKind), STEPS)
def test_only_what_counts_is_answered(kind: SessionKind, steps: list[str]) -> None:
    """REL-L34: forged, revoked and other-epoch grants reach no store, nor does a Worker's to write."""
    asyncio.run(only_what_counts_is_answered(core_over, kind, steps))


class Trusting(MemoryGrants):
    """Asks once, and believes it for changes too."""

    async def check(self, grant: str, right: MemoryRight) -> MemoryScope:
        if right != "recall" and grant in self._kept:
            return self._kept[grant]
        return await super().check(grant, right)


class Deaf(MemoryGrants):
    """Keeps what was revoked."""

    def revoke(self, grant: str) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("grants", "kind", "steps"),
    [
        (Trusting, SessionKind.WORKER, ["issue", "search", "store"]),
        (Deaf, SessionKind.BRANCH, ["issue", "search", "revoke", "search"]),
    ],
)
def test_planted_bugs_are_seen(grants: type[MemoryGrants], kind: SessionKind, steps: list[str]) -> None:
    """Storing by a kept answer, or keeping a revoked one, breaks the property."""

    def careless(store: ListStore, supervisor: Supervisor) -> MemoryService:
        core = core_over(store, supervisor)
        core._grants = grants(core._resolve_grants)
        return core

    with pytest.raises(AssertionError):
        asyncio.run(only_what_counts_is_answered(careless, kind, steps))


async def test_what_is_revoked_while_it_is_asked_about_is_not_kept() -> None:
    """The revocation may arrive before the answer that was given before it."""
    supervisor = Supervisor(anybody, answer=asyncio.Event())
    core = core_over(ListStore(), supervisor)
    searching = asyncio.ensure_future(asked(core, "search", "token"))
    await supervisor.asked.wait()
    core.revoked("token")
    assert supervisor.answer is not None
    supervisor.answer.set()
    await searching
    await asked(core, "search", "token")
    await asked(core, "search", "token")
    assert len(supervisor.questions) == 2, "it was asked again, and the second answer kept"


async def test_stores_at_once_are_asked_about_at_once() -> None:
    """Those that come while the supervisor is asked go together with its next question."""
    supervisor = Supervisor(anybody, answer=asyncio.Event())
    store = ListStore()
    core = core_over(store, supervisor)
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(core.store("token", (RECORD,), f"key{number}"))
        await supervisor.asked.wait()
        assert supervisor.answer is not None
        supervisor.answer.set()
    assert len(store.records) == 8
    assert sum(map(len, supervisor.questions)) == 8
    assert len(supervisor.questions) <= 2


async def test_supervisor_that_fails_fails_those_who_ask_alone() -> None:
    """Everybody who waits is informed; the next is asked about again."""

    def fails(token: str, right: MemoryRight) -> MemoryScope:
        if not heard:
            heard.append(token)
            raise ConnectionError("no way to it")
        return SCOPE

    heard: list[str] = []
    core = core_over(ListStore(), Supervisor(fails))
    with pytest.raises(ConnectionError):
        await asked(core, "store", "token")
    assert await asked(core, "store", "token") == ["t1/main/b2\nkey/0"]


async def test_key_names_a_store_of_its_session_alone() -> None:
    """Nobody takes the key of another session before it comes; the same session stores once."""
    scopes = {"a": SCOPE, "b": MemoryScope("t1", "main/b3", "default", "/workspace")}
    store = ListStore()
    core = core_over(store, Supervisor(lambda token, right: scopes[token]))
    for token in ("a", "b", "a"):
        await core.store(token, (RECORD,), "key")
    assert [record.scope.session for record in store.records] == ["main/b2", "main/b3"]


@pytest.mark.parametrize(
    ("records", "field"),
    [
        ((), None),
        ((RECORD,) * 1001, None),
        ((RECORD, NewRecord(" \n")), "/1/text"),
        ((NewRecord("x" * 20_001),), "/0/text"),
        ((NewRecord("\ud800"),), "/0/text"),
        ((NewRecord("x", "idea"),), "/0/type"),  # type: ignore[arg-type]
        ((NewRecord("x", trust="owner"),), "/0/trust"),
        ((NewRecord("x", source="a#L9-L3"),), "/0/source"),
        ((NewRecord("x", source="a\nb"),), "/0/source"),
    ],
)
async def test_what_no_session_may_store_is_refused(
    records: tuple[NewRecord, ...], field: str | None
) -> None:
    """Whatever a host sends is checked where it arrives: nobody vouches as the owner."""
    store = ListStore()
    with pytest.raises(ValidationError) as caught:
        await core_over(store, Supervisor(anybody)).store("token", records, "key")
    assert caught.value.field == field
    assert store.asked == []


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("search", (MemoryQuery(""),)),
        ("search", (MemoryQuery("x", limit=0),)),
        ("search", (MemoryQuery("x", limit=101),)),
        ("search", (MemoryQuery("x", types=("idea",)),)),  # type: ignore[arg-type]
        ("search", (MemoryQuery("x", path=" "),)),
        ("select", (Selection(), 5)),
        ("select", (Selection(ids=("x",)), 0)),
        ("select", (Selection(first=3), 5)),
        ("select", (Selection(path="a", first=0), 5)),
        ("select", (Selection(path="a", first=5, last=4), 5)),
        ("forget", (Selection(), "key")),
        ("forget", (Selection(ids=("x",) * 1001), "key")),
    ],
)
async def test_what_means_nothing_is_refused(name: str, given: tuple[Any, ...]) -> None:
    """A query without words, a selection without conditions: the store is not asked."""
    store = ListStore()
    with pytest.raises(ValidationError):
        await getattr(core_over(store, Supervisor(anybody)), name)("token", *given)
    assert store.asked == []


async def test_forgetting_again_by_the_same_key_answers_the_same() -> None:
    """Who lost the answer asks again, and learns what went."""
    store = ListStore()
    core = core_over(store, Supervisor(anybody))
    ids = await core.store("token", (RECORD, RECORD), "key")
    selection = Selection(ids=tuple(ids))
    assert await core.forget("token", selection, "once") == ids
    assert await core.forget("token", selection, "once") == ids
    assert await core.forget("token", selection, "twice") == []


async def test_store_that_can_not_be_written_says_so_and_goes_on_later() -> None:
    """A full disk is a typed error to who stores; what is there is still found."""
    store = ListStore()
    core = core_over(store, Supervisor(anybody))
    await core.store("token", (RECORD,), "a")
    store.failure = MemoryFailed("/memory", "no space left", "unwritable")
    with pytest.raises(MemoryFailed, check=has_cause("unwritable"), match="no space left"):
        await core.store("token", (RECORD,), "b")
    assert len(await core.search("token", MemoryQuery("sky"))) == 1
    store.failure = None
    await core.store("token", (RECORD,), "b")
    assert len(store.records) == 2


async def test_store_that_does_not_open_is_tried_again_by_the_next() -> None:
    """All who waited for one opening are informed; the next asks again."""
    store, tries = ListStore(), 0

    async def open_store() -> ListStore:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0)
        if tries == 1:
            raise MemoryFailed("/memory", "no such place")
        return store

    core = MemoryService("/memory", open_store, Supervisor(anybody))
    both = {asyncio.ensure_future(asked(core, name, "a")) for name in ("search", "store")}
    await asyncio.wait(both)
    assert [type(each.exception()) for each in both] == [MemoryFailed, MemoryFailed]
    assert await asked(core, "search", "a") == []
    assert tries == 2


async def test_store_that_another_process_lets_go_is_waited_for() -> None:
    """The process before this one ends with its supervisor, a moment later."""
    tries = 0

    async def open_store() -> ListStore:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise MemoryFailed("/memory", "process 7 writes it", "locked")
        return ListStore()

    core = MemoryService("/memory", open_store, Supervisor(anybody))
    async with asyncio.timeout(60):
        assert await asked(core, "search", "a") == []
    assert tries == 3


async def test_what_ended_before_is_marked_as_the_store_opens() -> None:
    """Trees of the journal whose Main has completed; others stay as they are."""
    store = ListStore()
    for tree_id in ("t1", "t2"):
        scope = MemoryScope(tree_id, "main", "default", "/workspace")
        await store.store([RECORD], scope, "key")
    core = core_over(store, Supervisor(anybody, trees={"t1": END, "t3": Ended("t3", "a", "b", 1)}))
    await asked(core, "search", "token")
    assert store.finished == {"t1": END}


async def test_what_ends_is_marked_if_it_left_anything() -> None:
    """Whether it ends before the store opens, while it does, or later."""
    store, supervisor = ListStore(), Supervisor(anybody)
    core = core_over(store, supervisor)
    core.ended(END)  # not open: it is asked for when that happens
    await asked(core, "search", "token")
    core.ended(END)
    await asked(core, "search", "token")
    assert store.finished == {}, "it has left nothing"
    await asked(core, "store", "token")
    core.ended(END)
    await core.close()
    assert store.finished == {"t1": END}
    assert store.is_closed


async def test_who_asks_after_an_end_finds_what_was_left() -> None:
    """The end is reported with the answer about the grant, and marked before anything is searched."""
    store, marking = ListStore(), asyncio.Event()

    class Slow(ListStore):
        async def mark_finished(self, tree_id: str, agent_id: str, workspace: str, ended_at_ms: int) -> None:
            marking.set()
            await asyncio.sleep(0)
            await store.mark_finished(tree_id, agent_id, workspace, ended_at_ms)

        async def search(self, query: MemoryQuery, scope: MemoryScope | None) -> list[MemoryHit]:
            assert store.finished == {"t1": END}
            return []

    slow, supervisor = Slow(), Supervisor(anybody)
    core = core_over(slow, supervisor)
    await core.store("token", (RECORD,), "key")
    supervisor.untold = (END,)
    assert await core.search("token", MemoryQuery("sky")) == []
    assert marking.is_set()
    await core.close()


async def test_what_ends_while_the_store_opens_is_marked() -> None:
    """Between the question which trees have ended and the first answer, one more may end."""
    store, supervisor = ListStore(), Supervisor(anybody)
    await store.store([RECORD], SCOPE, "key")
    opening = asyncio.Event()

    async def open_store() -> ListStore:
        await opening.wait()
        return store

    core = MemoryService("/memory", open_store, supervisor)
    searching = asyncio.ensure_future(asked(core, "search", "token"))
    await supervisor.asked.wait()
    await asyncio.sleep(0)
    core.ended(END)
    opening.set()
    await searching
    await core.close()
    assert store.finished == {"t1": END}


async def test_store_whose_trees_are_not_known_is_let_go_again() -> None:
    """Without its supervisor's word memory would hide what finished trees left."""
    store = ListStore()
    await store.store([RECORD], SCOPE, "key")
    core = core_over(store, Supervisor(anybody, failure=ConnectionError("gone")))
    with pytest.raises(ConnectionError):
        await asked(core, "search", "token")
    assert store.is_closed


async def test_closed_memory_says_so() -> None:
    """Nobody opens it again by asking."""
    store = ListStore()
    core = core_over(store, Supervisor(anybody))
    await asked(core, "search", "token")
    await core.close()
    with pytest.raises(MemoryFailed, match="being closed"):
        await asked(core, "search", "token")
    assert store.is_closed
