"""What a turn is left with that acts for others than the creating program."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, ToolFlag
from sessiontree.policy.catalog import CatalogRow
from sessiontree.policy.compiled import CompiledPolicy, SessionPolicy
from sessiontree.policy.settings import PolicyConfig, ToolLists
from sessiontree.policy.steps import Standing

SEARCH = settings(max_examples=2_000, derandomize=True, database=None, phases=[Phase.generate])
Withheld = Callable[[SessionPolicy, Iterable[Principal]], frozenset[str]]
NAMES = ("look", "note", "ledger")
ROWS = tuple(
    CatalogRow(
        name=name,
        label=name,
        section="user",
        tier=PermissionTier.WORKSPACE,
        kinds=MAIN_AND_BRANCH,
        flags=frozenset({ToolFlag.OWNER_ONLY}) if name == "ledger" else frozenset(),
    )
    for name in NAMES
)
GROUPS = ("", "club", "family")
askers = st.lists(
    st.builds(
        Principal, st.sampled_from("ab"), st.just(""), st.just(""), st.sampled_from(GROUPS), st.booleans()
    ),
    max_size=3,
)
lists = st.builds(ToolLists, deny=st.lists(st.sampled_from(NAMES), max_size=2).map(tuple))
policies = st.builds(
    lambda club, family, is_owner, group: SessionPolicy(
        CompiledPolicy(ROWS, PolicyConfig(groups={"club": club, "family": family})),
        Standing(SessionKind.MAIN, is_owner, group=group),
    ),
    lists,
    lists,
    st.booleans(),
    st.sampled_from(GROUPS),
)
Case = tuple[SessionPolicy, list[Principal]]
cases = st.tuples(policies, askers)


def strictest(policy: SessionPolicy, several: Iterable[Principal]) -> frozenset[str]:
    """Return what is left by asking about each tool and asker alone."""
    left = set(policy.kept)
    for asker in several:
        is_owner = policy.standing.is_owner and asker.is_owner
        met = Standing(SessionKind.MAIN, is_owner, group=asker.group or policy.standing.group)
        left = {name for name in left if policy.policy.explain(name, met).kept}
    return frozenset(left)


def only_removes(withheld: Withheld, case: Case) -> None:
    """Property: a turn for several holds what each of them leaves it, and never more than it does alone."""
    policy, several = case
    gone = withheld(policy, several)
    assert gone <= policy.kept
    assert policy.kept - gone == strictest(policy, several)


@given(cases)
def test_turn_holds_what_each_of_its_askers_leaves_it(case: Case) -> None:
    """Whoever is no owner takes the owners' tools away, and each group what its lists remove."""
    only_removes(SessionPolicy.find_withheld, case)
    policy, several = case
    for name in SessionPolicy.find_withheld(policy, several):
        assert not policy.explain_to(name, several).kept


def _first_alone(policy: SessionPolicy, several: Iterable[Principal]) -> frozenset[str]:
    return policy.find_withheld(list(several)[:1])


def _any_owner_will_do(policy: SessionPolicy, several: Iterable[Principal]) -> frozenset[str]:
    askers = list(several)
    gone = policy.find_withheld(askers)
    return gone - {"ledger"} if any(asker.is_owner for asker in askers) else gone


def _groups_do_not_count(policy: SessionPolicy, several: Iterable[Principal]) -> frozenset[str]:
    return policy.find_withheld([Principal(each.id, "", "", "", each.is_owner) for each in several])


@pytest.mark.slow
@pytest.mark.parametrize("planted", [_first_alone, _any_owner_will_do, _groups_do_not_count])
def test_property_fails_for_one_that_leaves_more(planted: Withheld) -> None:
    """Each planted bug is found."""

    def is_found(case: Case) -> bool:
        try:
            only_removes(planted, case)
        except AssertionError:
            return True
        return False

    find(cases, is_found, settings=SEARCH)


def test_owner_s_tool_needs_an_owner_on_both_sides() -> None:
    """It stays where session and asker are owners; a guest among the askers withholds it."""
    owner, guest = (Principal(name, "", "", "", name == "owner") for name in ("owner", "guest"))
    policy = CompiledPolicy(ROWS, PolicyConfig())
    mine = SessionPolicy(policy, Standing(SessionKind.MAIN, is_owner=True))
    assert mine.find_withheld([owner]) == frozenset()
    assert mine.explain_to("ledger", [owner]).kept
    assert mine.find_withheld([owner, guest]) == {"ledger"}
    removal = mine.explain_to("ledger", [owner, guest]).removal
    assert removal is not None
    assert removal.step == "owner only"
    another = SessionPolicy(policy, Standing(SessionKind.MAIN, is_owner=False))
    assert "ledger" not in another.kept
    assert not another.explain_to("ledger", [owner]).kept
