"""Histories: the same conversation has the same name however a client divides it, and others have others."""

from __future__ import annotations

from pathlib import Path
from random import Random

from sessiontree.doors.histories import Histories, Speaker, Utterance, compute_history_digest


def test_name_depends_on_what_was_said_alone() -> None:
    """Divisions and white space do not count; speaker, text, agent and instructions do."""
    random = Random(1)
    for _ in range(200):
        said = [
            Utterance(random.choice(("user", "assistant")), "".join(random.choices("ab \n", k=6)))
            for _ in range(random.randint(1, 6))
        ]
        name = compute_history_digest("a", "i", said)
        split: list[Utterance] = []
        for each in said:
            at = random.randint(0, len(each.text))
            split += [Utterance(each.speaker, each.text[:at]), Utterance(each.speaker, each.text[at:] + " ")]
        assert compute_history_digest("a", "i ", split) == name
        other: Speaker = "user" if said[0].speaker == "assistant" else "assistant"
        assert compute_history_digest("a", "i", [*said, Utterance(other, "x")]) != name
        assert compute_history_digest("b", "i", said) != name
        assert compute_history_digest("a", "j", said) != name


def test_borders_between_speakers_count() -> None:
    """What one says can't be moved to the other, also not by words that look like a border."""
    one = [Utterance("user", "ab"), Utterance("assistant", "c")]
    two = [Utterance("user", "a"), Utterance("assistant", "bc")]
    three = [Utterance("user", "ab\nassistant 1 c")]
    assert len({compute_history_digest("a", "", each) for each in (one, two, three)}) == 3


def test_entries_are_kept_by_principal_over_a_loss(tmp_path: Path) -> None:
    """A line that was cut is passed over, and nobody sees what another principal has."""
    histories = Histories(tmp_path)
    histories.keep("token:1", "r1", ["a", "b"])
    histories.keep("token:1", "r2", ["b"])
    histories.keep("token:2", "r3", ["a"])
    (file,) = [each for each in (tmp_path / "doors" / "histories").iterdir() if "r1" in each.read_text()]
    with file.open("a") as cut:
        cut.write("c")
    again = Histories(tmp_path)
    assert [again.find("token:1", name) for name in "abc"] == ["r1", "r2", None]
    assert again.find("token:2", "b") is None
    assert file.stat().st_mode & 0o077 == 0
