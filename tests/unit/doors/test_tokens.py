"""Tokens: whoever has one comes in, until it is revoked or expires, and the file never says what it is."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import ConfigError
from sessiontree.doors.principals import DoorRights
from sessiontree.doors.tokens import TokenFile

RIGHTS = DoorRights(workspace="/srv/work", tier="Workspace", budget_usd=5.0)
NOW_MS = 1_000_000


def test_token_is_found_until_it_expires(tmp_path: Path) -> None:
    """Its rights come with it; nobody comes in by its digest."""
    tokens = TokenFile(tmp_path)
    given = tokens.add("editor", RIGHTS, NOW_MS, NOW_MS + 10)
    found = tokens.find(given, NOW_MS)
    assert (found.name, found.rights) == ("editor", RIGHTS)
    with pytest.raises(ConfigError, match="has expired"):
        tokens.find(given, NOW_MS + 10)
    with pytest.raises(ConfigError, match="not one of this server"):
        tokens.find(given.replace(given[-43:], found.digest[:43]), NOW_MS)


def test_file_is_its_owners_and_has_no_secret(tmp_path: Path) -> None:
    """Neither the token nor a part of its secret."""
    given = TokenFile(tmp_path).add("editor", RIGHTS, NOW_MS, None)
    (path,) = (tmp_path / "doors").glob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = given.split("_", 2)[2]
    text = path.read_text()
    assert secret[:8] not in text
    assert json.loads(text)[0]["name"] == "editor"


def test_revocation_holds_at_once_for_everybody(tmp_path: Path) -> None:
    """Also for a server that has read the file before."""
    server, owner = TokenFile(tmp_path), TokenFile(tmp_path)
    given, other = (owner.add(name, RIGHTS, NOW_MS, None) for name in ("one", "two"))
    token_id = server.find(given, NOW_MS).token_id
    assert owner.revoke(token_id).is_revoked
    with pytest.raises(ConfigError, match="was revoked"):
        server.find(given, NOW_MS)
    assert server.find(other, NOW_MS).name == "two"
    with pytest.raises(ConfigError, match="no token is called 'nobody'"):
        owner.revoke("nobody")


@given(st.text(max_size=80))
def test_whatever_else_is_given_lets_nobody_in(given: str) -> None:
    """And the error does not repeat it."""
    tokens = TokenFile(Path("/nonexistent"))
    with pytest.raises(ConfigError) as caught:
        tokens.find(given, NOW_MS)
    assert str(caught.value) == "the token is not one of this server"


@pytest.mark.parametrize("text", ["", "[", "{}", '[{"token_id": 1}]'])
def test_spoiled_file_lets_nobody_in(tmp_path: Path, text: str) -> None:
    """It is named, and not written over."""
    tokens = TokenFile(tmp_path)
    given = tokens.add("editor", RIGHTS, NOW_MS, None)
    path = tmp_path / "doors" / "tokens.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="can't be read"):
        tokens.find(given, NOW_MS)
    with pytest.raises(ConfigError, match="can't be read"):
        tokens.revoke("x")
    assert path.read_text() == text


@pytest.mark.parametrize(
    "wrong", [{"tier": "Root"}, {"budget_usd": 0}, {"budget_usd": -1}, {"per_minute": 0}, {"workspace": ""}]
)
def test_wrong_rights_are_refused(wrong: dict[str, Any]) -> None:
    """The error names the member."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        DoorRights(**{"workspace": "/w", **wrong})
