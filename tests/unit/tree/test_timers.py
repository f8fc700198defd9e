"""Alarms: what is due, in order, and what means nothing any more does not pile up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.settings.settings import Limits
from sessiontree.tree.decide import react
from sessiontree.tree.state.protocol import SessionEmbodied, SpawnAsked, TreeOpened
from sessiontree.tree.state.state import SLACK, Alarm, AlarmKind, Alarms, make_initial_tree
from tests.unit.tree.tree_fixtures import WORKER, approval_asked, checked, config, result, result_offered

alarms = st.builds(
    Alarm, st.integers(0, 20), st.sampled_from(AlarmKind), st.integers(-2, 2), st.sampled_from("abc")
)
Due = Callable[[Alarms, int], list[Alarm]]


def check_due(due: Due, given_alarms: list[Alarm], now_ms: int) -> None:
    """What is due is all that is not later, sorted; nothing is taken out by asking."""
    heap = Alarms()
    for alarm in given_alarms:
        heap.set(alarm)
    assert due(heap, now_ms) == sorted(alarm for alarm in given_alarms if alarm.at_ms <= now_ms)
    later = [alarm.at_ms for alarm in given_alarms if alarm.at_ms > now_ms]
    assert heap.find_next_after(now_ms) == min(later, default=None)
    assert sorted(heap) == sorted(given_alarms)


@given(st.lists(alarms, max_size=30), st.integers(0, 21))
def test_what_is_due_is_all_that_is_not_later(given_alarms: list[Alarm], now_ms: int) -> None:
    """The part of the heap that is looked at is the part that is due."""
    check_due(Alarms.list_due, given_alarms, now_ms)


def test_looking_only_at_the_left_of_the_heap_is_found() -> None:
    """The property fails where one side of the heap is passed over."""

    @settings(phases=(Phase.generate,), database=None, derandomize=True)
    @given(st.lists(alarms, max_size=30), st.integers(0, 21))
    def property_of_a_lazy_heap(given_alarms: list[Alarm], now_ms: int) -> None:
        check_due(lambda heap, now: heap.list_due(now)[:3], given_alarms, now_ms)

    with pytest.raises(AssertionError):
        property_of_a_lazy_heap()


def test_alarms_of_the_decided_do_not_pile_up() -> None:
    """However many requests are answered, the heap stays in proportion to those that wait."""
    state = make_initial_tree()
    react(state, TreeOpened(0, config(mode="auto")))
    for number in range(10 * SLACK):
        react(state, approval_asked(number, "main", f"r{number}", checked("1.0", "deploy", {}, f"d{number}")))
    assert len(state.alarms) <= SLACK + 2 * 3 * state.live


def test_alarms_of_the_ended_do_not_pile_up() -> None:
    """However many sessions come and go, the heap stays in proportion to those that live."""
    state = make_initial_tree()
    react(state, TreeOpened(0, config(limits=Limits(max_total=10**6))))
    react(state, SpawnAsked(0, "main", WORKER, "task", "handle", ttl_s=1))
    react(state, SessionEmbodied(0, "main/w1"))
    for number in range(2, 10 * SLACK):
        react(state, SpawnAsked(1, "main", WORKER, "task", "handle"))
        react(state, SessionEmbodied(1, f"main/w{number}"))
        react(state, result_offered(1, f"main/w{number}", result(), True))
        assert len(state.alarms) <= SLACK + 2 * 3 * state.live
    assert [alarm.ident for alarm in state.alarms if state.is_still_valid(alarm)] == ["main/w1"]
