"""Ids that leave a tree: nobody meets one twice, and everybody meets the same one again."""

from __future__ import annotations

import copy
import hmac
import pickle
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.contracts.values.session_ids import SessionIds, compute_session_key

MakeIds: TypeAlias = Callable[[str, str], SessionIds]

NONCES = st.sampled_from(["00" * 16, "01" * 16]) | st.binary(min_size=16, max_size=16).map(bytes.hex)
SESSIONS = st.sampled_from(["main", "main/b1", "main/b11", "main/b1/w1", "main/b1/w11"])
KEYS = st.sampled_from(["1.0", "11.0", "call.1.0"]) | st.text(max_size=8)
PLACES = st.lists(st.tuples(NONCES, SESSIONS, KEYS), min_size=2, max_size=6, unique=True)


def made(nonce: str, session: str) -> SessionIds:
    """Return what makes the ids of a session of a tree."""
    return SessionIds(session, compute_session_key(nonce, session))


def all_ids(ids: SessionIds, key: str) -> list[str]:
    """Return every id that a call with a key could have."""
    return [ids.request(key), ids.call(key), ids.client(key)]


def ids_are_met_once(make: MakeIds) -> None:
    """Between any trees, sessions, keys and purposes ids differ; made again they are the same."""

    @settings(max_examples=200)
    @given(PLACES)
    def check(places: list[tuple[str, str, str]]) -> None:
        found = [all_ids(make(nonce, session), key) for nonce, session, key in places]
        assert len({one for ids in found for one in ids}) == 3 * len(places)
        assert all(len(one) == 32 and int(one, 16) >= 0 for ids in found for one in ids)
        assert found == [all_ids(make(nonce, session), key) for nonce, session, key in places]

    check()


def test_ids_are_met_once() -> None:
    """For any nonces, sessions and keys."""
    ids_are_met_once(made)


class _OfTheTreeAlone(SessionIds):
    def _derive_id(self, purpose: str, key: str) -> str:
        return hmac.digest(bytes.fromhex(self.key), f"{purpose}{key}".encode(), "sha256").hex()[:32]


class _OfOnePurpose(SessionIds):
    def _derive_id(self, purpose: str, key: str) -> str:
        return super()._derive_id("call", key)


_COUNTER = count()

PLANTED: dict[str, MakeIds] = {
    "no tree in it": lambda nonce, session: made("00" * 16, session),
    "no session in it": lambda nonce, session: _OfTheTreeAlone(session, compute_session_key(nonce, "main")),
    "no purpose in it": lambda nonce, session: _OfOnePurpose(session, compute_session_key(nonce, session)),
    "chance in it": lambda nonce, session: made(f"{next(_COUNTER):032x}", session),
}


@pytest.mark.short(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_ids_that_could_be_met_twice_are_found(name: str) -> None:
    """The property fails where something is left out, or does not come again."""
    with pytest.raises(AssertionError):
        ids_are_met_once(PLANTED[name])


@given(NONCES, SESSIONS, KEYS)
def test_id_is_an_hmac(nonce: str, session: str, key: str) -> None:
    """As written down: HMAC-SHA-256 of nonce and session, of that and purpose and key, its first 128 bits."""
    own = hmac.digest(bytes.fromhex(nonce), session.encode(), "sha256")
    for purpose, found in zip(("request", "call", "client"), all_ids(made(nonce, session), key), strict=True):
        assert found == hmac.digest(own, f"{purpose}\0{key}".encode(), "sha256").hex()[:32]


@given(NONCES, SESSIONS)
def test_what_makes_ids_is_a_value(nonce: str, session: str) -> None:
    """It can be compared, copied and sent to another process."""
    ids = made(nonce, session)
    for other in (made(nonce, session), copy.deepcopy(ids), pickle.loads(pickle.dumps(ids))):
        assert (other, hash(other)) == (ids, hash(ids))
        assert other.call("1.0") == ids.call("1.0")
    assert ids != made(f"ff{nonce}", session)
    assert ids != session
