"""What holds for every state of a tree, whatever happened. Tests ask after every step."""

from __future__ import annotations

from collections import Counter

from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.tree.rules.spawn import compute_deepest_level
from sessiontree.tree.state.budgets import find_payers
from sessiontree.tree.state.state import Session, TreeState


def check_invariants(state: TreeState) -> None:
    """Look at the whole state. O(size of the tree).

    Raises:
        AssertionError: something that must never be is; the text says what and where.
    """
    if state.config is None:
        _hold(state.total == 0, "there are sessions in a tree that was never created")
        return
    _check_counts(state)
    _check_limits(state)
    for name, session in state.sessions.items():
        _check_rights(state, name, session)
        _check_life(state, name, session)
    _check_requests(state)
    _check_client_calls(state)
    _check_posts(state)
    _check_accounts(state)
    _check_alarms(state)


def _hold(condition: bool, broken: str) -> None:
    if not condition:
        raise AssertionError(broken)


def _check_counts(state: TreeState) -> None:
    sessions = dict(state.sessions.items())
    live = [session for session in sessions.values() if session.is_live]
    _hold(state.total == len(sessions), f"total is {state.total} of {len(sessions)}")
    _hold(state.live == len(live), f"live is {state.live} of {len(live)}")
    children = Counter(session.spec.parent for session in live)
    below = Counter(
        link.spec.session_id
        for session in live
        for link in state.list_chain(session.spec.session_id)
        if link is not session
    )
    for name, session in sessions.items():
        _hold(session.live_children == children[name], f"{name} miscounts its live children")
        _hold(session.live_below == below[name], f"{name} miscounts what lives below it")
        found = state.children.list_members(name)
        expected = [child.spec.session_id for child in live if child.spec.parent == name]
        _hold(found == expected, f"the live children of {name} are {expected}, not {found}")


def _check_limits(state: TreeState) -> None:
    limits = state.limits
    _hold(state.live <= limits.max_live, f"{state.live} sessions live, at most {limits.max_live}")
    _hold(state.total <= limits.max_total, f"{state.total} sessions in all, at most {limits.max_total}")
    for name, session in state.sessions.items():
        _hold(session.live_children <= limits.max_children, f"{name} has too many live children")
        spec = session.spec
        if spec.kind is not SessionKind.MAIN:
            deepest = compute_deepest_level(spec.kind, limits.max_depth)
            _hold(1 <= spec.depth <= deepest, f"{name} is a {spec.kind} at depth {spec.depth}")


def _check_rights(state: TreeState, name: str, session: Session) -> None:
    spec = session.spec
    allowed = state.allowed[spec.agent, spec.kind]
    _hold(allowed.issuperset(spec.tools), f"{name} holds tools its kind or agent lacks")
    _hold(set(spec.tools).isdisjoint(spec.delegates), f"{name} uses what it only delegates")
    parent = state.find_parent(session)
    if parent is None:
        _hold(spec.kind is SessionKind.MAIN and name == "main", f"{name} has no parent")
        return
    passed_on = {*parent.spec.tools, *parent.spec.delegates}
    _hold(passed_on.issuperset(spec.tools), f"{name} holds tools its parent lacks")
    _hold(passed_on.issuperset(spec.delegates), f"{name} delegates tools its parent lacks")
    _hold(not spec.taint or parent.taint != "", f"{name} was tainted by a parent that is not")
    _hold(not spec.taint or session.taint != "", f"{name} is tainted no more")
    _hold(parent.spec.kind is not SessionKind.WORKER, f"{name} is the child of a worker")
    _hold(name.rpartition("/")[0] == spec.parent, f"{name} is not below {spec.parent}")
    if spec.via == "model":
        decides = spec.owns_channel or spec.rules or spec.approver is not None
        _hold(not decides, f"{name} was spawned by a model and could approve")


def _check_life(state: TreeState, name: str, session: Session) -> None:
    is_bounded = session.spec.ttl_s is not None
    _hold(is_bounded or session.expires_at_ms is None, f"{name} ends at a time that nobody set")
    _hold(session.is_live is not session.status.is_final, f"{name} is {session.status} and has a result")
    is_suspended = session.status is SessionStatus.SUSPENDED
    _hold(is_suspended is (session.held is not None), f"{name} is {session.status} and its word is held")
    parent = state.find_parent(session)
    if session.is_live and parent is not None and (parent.stop is not None or not parent.is_live):
        _hold(session.stop is not None, f"{name} goes on below {session.spec.parent}, which does not")
    if session.is_live and session.stop is not None:
        _hold(session.pending == 0, f"{name} is stopping and waits for an approval")
        _hold(session.delegated == 0, f"{name} is stopping and waits for the program")
        _hold(session.held is None or session.live_below > 0, f"{name} could have ended")
    if session.spec.label is not None and session.is_live and session.spec.parent is not None:
        holder = state.labels.get((session.spec.parent, session.spec.label))
        _hold(holder == name, f"{name} does not hold its label")


def _check_requests(state: TreeState) -> None:
    pending: Counter[str] = Counter()
    for request_id, request in state.requests.items():
        asker, call = request.question.session, request.question.call
        pending[asker] += 1
        _hold(request_id not in state.decisions, f"{request_id} is open and decided")
        _hold(request.how is not None and request.rests_at is not None, f"{request_id} rests nowhere")
        chain = {link.spec.session_id for link in state.list_chain(asker)}
        _hold(request.rests_at in chain, f"{request_id} rests outside its path")
        _hold(state.find_live_session(asker) is not None, f"{request_id} outlived who asked")
        _hold(not any((call.digest, name) in state.denied for name in chain), f"{request_id} was denied")
        _hold(call.tool not in state.always, f"{request_id} was allowed for good")
    for name, session in state.sessions.items():
        _hold(session.pending == pending[name], f"{name} miscounts its open requests")
        _hold(len(state.requests_of.list_members(name)) == pending[name], f"{name} has unknown requests")


def _check_client_calls(state: TreeState) -> None:
    waiting: Counter[str] = Counter()
    for client_id, call in state.client_calls.items():
        waiting[call.session_id] += 1
        _hold(client_id not in state.client_ends, f"{client_id} waits and has ended")
        _hold(state.find_live_session(call.session_id) is not None, f"{client_id} outlived its session")
    for name, session in state.sessions.items():
        _hold(session.delegated == waiting[name], f"{name} miscounts its client calls")


def _check_posts(state: TreeState) -> None:
    owed: Counter[str] = Counter()
    for post_id, post in state.posts.items():
        owed[post.session] += 1
        _hold(state.find_live_session(post.session) is not None, f"{post_id} is owed to who has ended")
    for name, session in state.sessions.items():
        _hold(session.owed == owed[name], f"{name} miscounts what it is owed")
        _hold(len(state.owed_to.list_members(name)) == owed[name], f"{name} is owed unknown posts")


def _check_accounts(state: TreeState) -> None:
    set_aside: Counter[tuple[str, str]] = Counter()
    for account in state.accounts.values():
        if account.above is not None and not account.is_closed:
            for member, cap in account.caps.items():
                for payer in find_payers(state.accounts, account.above, member):
                    set_aside[payer, member] += cap
    for name, account in state.accounts.items():
        for member, used in account.used.items():
            _hold(used >= set_aside[name, member], f"{name} set aside more {member} than it counts")
            spent = used - set_aside[name, member]
            owner = state.sessions[name]
            reached = spent > 0 and used >= account.caps[member] and member != "sessions"
            # Reserving may fill an account; spending beyond that stops its session.
            if reached and used > account.caps[member] and owner.is_live:
                _hold(owner.stop is not None, f"{name} goes on beyond its {member}")


def _check_alarms(state: TreeState) -> None:
    found = {(alarm.at_ms, alarm.ident) for alarm in state.alarms if state.is_still_valid(alarm)}
    for name, session in state.sessions.items():
        if not session.is_live:
            continue
        account = state.accounts.get(name)
        wanted = [
            session.expires_at_ms if session.stop is None else session.stop.force_at_ms,
            account.wall_at_ms if account is not None and session.stop is None else None,
        ]
        for at_ms in wanted:
            _hold(at_ms is None or (at_ms, name) in found, f"nothing rings for {name} at {at_ms}")
    for request_id, request in state.requests.items():
        _hold((request.expires_at_ms, request_id) in found, f"nothing rings for {request_id}")
