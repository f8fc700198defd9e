"""The benchmark of suites: killed commands score every sample once, and its judge would see it if not."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from benchmarks.suite import judge, killed
from benchmarks.suite_program import made


@pytest.mark.slow
@pytest.mark.covers("C14")
@pytest.mark.long
@pytest.mark.parametrize(
    ("provider", "by_role"), [(False, {"driver": 2}), (True, {"driver": 1, "provider": 1})]
)
def test_killed_commands_score_every_sample_once(
    tmp_path: Path, provider: bool, by_role: dict[str, int]
) -> None:
    """On the local backend, the command alone is killed, and the provider if one replies."""
    found = killed(tmp_path / "k", "local", 40, 2, seed=1, poison=False, provider=provider)
    assert found["by_role"] == by_role
    assert found["scored"] == 40
    wrong = ("scored_twice", "unscored", "wrong", "effects_twice", "effects_missing")
    assert {name: found[name] for name in wrong} == dict.fromkeys(wrong, 0)


async def test_planted_faults_are_counted(tmp_path: Path) -> None:
    """A score without its effect, an effect that happened twice, a wrong score, and one that is missing."""
    await made(4).run(tmp_path / "run", backend="local")
    effects = tmp_path / "effects"
    lines = effects.read_text().splitlines()
    effects.write_text("\n".join([lines[0], *lines[:-1]]) + "\n")
    db = sqlite3.connect(tmp_path / "run" / "ledger.sqlite", isolation_level=None)
    gone = lines[0].partition(" ")[0]
    db.execute("DELETE FROM scores WHERE sample_id = ?", (gone,))
    db.execute("UPDATE scores SET passed = 0 WHERE sample_id = ?", (lines[1].partition(" ")[0],))
    db.close()
    found = judge(tmp_path, 4)
    assert (found["scored"], found["unscored"], found["wrong"]) == (3, 1, 1)
    assert (found["effects_twice"], found["effects_missing"]) == (1, 1)
