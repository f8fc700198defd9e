"""A spawn that hooks forbid is refused like any other; one that happened stays as it was."""

from __future__ import annotations

import pytest

from sessiontree.contracts.errors import SpawnRefused
from sessiontree.contracts.facts.tree_facts import OutsideHookFailed, SessionSpawned, SpawnDenied
from sessiontree.tree.state.protocol import AcceptSpawn, HookFailedOutside, RefuseSpawn, SpawnAsked
from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.tree_fixtures import WORKER


@pytest.mark.parametrize("via", ["handle", "model"])
def test_forbidden_spawn_is_denied_in_the_hooks_words(via: str) -> None:
    """The journal says so, and nothing started."""
    harness = Harness().open()
    harness.feed(SpawnAsked(1, "main", WORKER, "look", via, label="scout", forbidden="not today"))  # type: ignore[arg-type]
    (refusal,) = [each for each in harness.told if isinstance(each, RefuseSpawn)]
    assert isinstance(refusal.error, SpawnRefused)
    assert "'scout': not today" in refusal.error.reason
    (denied,) = [fact for fact in harness.facts if isinstance(fact, SpawnDenied)]
    assert (denied.parent, denied.limit, denied.reason) == ("main", None, refusal.error.reason)
    assert harness.found(SessionSpawned)[1:] == []


def test_spawn_asked_for_again_is_the_child_it_was() -> None:
    """Its key names it, whatever hooks say this time."""
    harness = Harness().open()
    harness.feed(SpawnAsked(1, "main", WORKER, "look", "model", key="k"))
    harness.feed(SpawnAsked(2, "main", WORKER, "look", "model", key="k", forbidden="not today"))
    assert harness.told == [AcceptSpawn("main/w1", False)]


def test_failure_outside_is_noted_and_changes_nothing() -> None:
    """It is there for who reads the journal."""
    harness = Harness().open()
    failed = OutsideHookFailed("main", "clumsy", "session_start", "it raised OSError")
    harness.feed(HookFailedOutside(3, failed))
    assert harness.facts == [failed]
    assert harness.told == []
