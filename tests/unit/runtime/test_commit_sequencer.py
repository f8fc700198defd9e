"""What follows from facts happens once they are durable, in their order, or not at all."""

from __future__ import annotations

import asyncio
import gc
import random
from functools import partial

import pytest

from sessiontree.contracts.errors import JournalUnwritable, SessionTreeError
from sessiontree.runtime.scheduling.tree_waiters import FutureMap
from sessiontree.runtime.supervisor.controller.tree_committer import CommitSequencer


async def test_actions_follow_their_commits_in_the_order_given() -> None:
    """Commits may become durable in any order; what follows from them may not."""
    loop = asyncio.get_running_loop()
    done: list[int] = []
    failures: list[Exception] = []
    order = CommitSequencer(failures.append)
    commits = [loop.create_future() if number % 3 else None for number in range(30)]
    for number, commit in enumerate(commits):
        order.after(commit, partial(done.append, number))
    assert done == [0]
    waiting = [commit for commit in commits if commit is not None]
    random.Random(1).shuffle(waiting)
    for commit in waiting:
        commit.set_result(None)
        await asyncio.sleep(0)
        assert done == list(range(len(done)))
    assert done == list(range(30))
    assert failures == []


async def test_nothing_follows_after_a_commit_that_failed() -> None:
    """The failure is reported once; what came before has happened, what comes later never does."""
    loop = asyncio.get_running_loop()
    done: list[str] = []
    failures: list[Exception] = []
    order = CommitSequencer(failures.append)
    good, bad = loop.create_future(), loop.create_future()
    order.after(good, lambda: done.append("before"))
    order.after(bad, lambda: done.append("with"))
    order.after(None, lambda: done.append("after"))
    good.set_result(None)
    bad.set_exception(JournalUnwritable("here", "the disk is full"))
    await asyncio.sleep(0)
    order.after(None, lambda: done.append("later"))
    assert done == ["before"]
    assert [str(failure) for failure in failures] == ["journal 'here': the disk is full"]


async def test_failure_is_told_once_however_many_commits_fail_with_it() -> None:
    """The loop has nothing to report of the commits behind the first that failed."""
    loop = asyncio.get_running_loop()
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    failures: list[Exception] = []
    order = CommitSequencer(failures.append)
    commits = [loop.create_future() for _ in range(3)]
    for commit in commits:
        order.after(commit, lambda: None)
    for commit in commits:
        commit.set_exception(JournalUnwritable("here", "the disk is full"))
    await asyncio.sleep(0)
    del commit, commits
    gc.collect()
    loop.set_exception_handler(None)
    assert (len(failures), reported) == (1, [])


async def test_action_may_give_another() -> None:
    """What an action adds comes after what was there already."""
    done: list[str] = []
    order = CommitSequencer(lambda error: None)

    def first() -> None:
        order.after(None, lambda: done.append("third"))
        done.append("first")

    gate = asyncio.get_running_loop().create_future()
    order.after(gate, first)
    order.after(None, lambda: done.append("second"))
    gate.set_result(None)
    await asyncio.sleep(0)
    assert done == ["first", "second", "third"]


async def test_everybody_who_waits_for_a_name_is_told() -> None:
    """Values and errors reach all who wait, once; a name nobody waits for is no mistake."""
    waiters: FutureMap[int] = FutureMap()
    one, other = waiters.wait("a"), waiters.wait("a")
    refused = waiters.wait("b")
    waiters.settle("a", 5)
    waiters.settle("a", 6)
    waiters.settle("nobody", 7)
    waiters.fail("b", SessionTreeError("over"))
    assert (await one, await other) == (5, 5)
    with pytest.raises(SessionTreeError, match="over"):
        await refused
    given_up = waiters.wait("c")
    given_up.cancel()
    waiters.fail_all(SessionTreeError("closed"))
    assert waiters.keys() == ()
