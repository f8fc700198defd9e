"""Answer: an order that prefers the definition that is asked for, and nothing where nothing fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.survey.answer import rank_records
from sessiontree.survey.source.question import parse_question
from sessiontree.survey.source.records import SurveyEntry, collect_entries, parse_entry
from sessiontree.survey.source.source import read_source

FILES = {
    "src/session.py": 'def sign_cookie(value):\n    """Sign the session cookie."""\n\n\n'
    "def load(path):\n    pass\n",
    "src/store.py": 'class Store:\n    """Keeps sessions."""\n\n'
    '    def delete(self, key):\n        """Drop a key."""\n',
    "tests/test_session.py": "def test_sign_cookie():\n    pass\n",
    "CHANGES.md": "# 1.0\n\nThe session cookie is signed now: sign_cookie.\n",
    "locales/de.ts": "export const error = () => 'Fehler';\n",
    "locales/fr.ts": "export const error = () => 'erreur';\n",
}


def candidates() -> list[tuple[SurveyEntry, float]]:
    """Return the records of all files as memory finds them."""
    found = []
    for path, text in FILES.items():
        for one in collect_entries(read_source(path, text.encode(), len(text)))[0]:
            entry = parse_entry(one.text, one.source)
            assert entry is not None
            found.append((entry, 0.5))
    return found


def best(question: str) -> list[str]:
    """Return the names of good answers, best first."""
    return [one.entry.name for one in rank_records(candidates(), parse_question(question)) if one.is_good]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("how is the session cookie signed?", "sign_cookie"),
        ("where do I delete a key?", "Store.delete"),
        ("how is something removed from the store by its key?", "Store.delete"),
        ("what does `load` do?", "load"),
        ("which test covers sign_cookie?", "test_sign_cookie"),
    ],
)
def test_ranked_prefers_the_definition_asked_for(question: str, answer: str) -> None:
    """By its words, other forms of them, words for the same thing, or its name."""
    assert best(question)[0] == answer


def test_ranked_prefers_code_to_release_notes() -> None:
    """A change log that holds every word does not come before the code."""
    names = best("how is the session cookie signed?")
    assert names[0] == "sign_cookie"
    assert "1.0" not in names


def test_ranked_finds_translations_by_the_name_of_the_language() -> None:
    """A file of translations is called by a code."""
    first = rank_records(candidates(), parse_question("how are errors translated to German?"))[0]
    assert first.entry.path == "locales/de.ts"


def test_question_about_something_else_has_no_good_answer() -> None:
    """One common word is not enough."""
    assert best("where is the kubernetes ingress controller configured for a session?") == []


@given(st.text(max_size=200))
def test_ranked_takes_any_question(text: str) -> None:
    """The best comes first."""
    worths = [one.worth for one in rank_records(candidates(), parse_question(text))]
    assert worths == sorted(worths, reverse=True)
