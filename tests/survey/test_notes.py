"""Notes: marks in comments and documenting strings, with place and bounded text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessiontree.survey.finding import FileFinding
from sessiontree.survey.notes import MAX_NOTE_CHARS

Survey = Callable[[str, str], FileFinding]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.py", "x = 1  # TODO(me): mend  this\ny = 'TODO: no'\n", [(1, "TODO(me): mend this")]),
        (
            "a.py",
            'def f():\n    """Doc.\n\n    FIXME: later\n    """\n    s = """\n    TODO no\n    """\n',
            [(4, "FIXME: later")],
        ),
        (
            "a.py",
            "# TODO one, FIXME the same line\n# XXX\n",
            [(1, "TODO one, FIXME the same line"), (2, "XXX")],
        ),
        (
            "a.c",
            "/* first\n * HACK around it */ int x; // XXX and this\n",
            [(2, "HACK around it")],
        ),
        ("a.c", "/* TODO tidy */\n", [(1, "TODO tidy")]),
        ("a.html", "<!-- FIXME: broken --><p>TODO</p>\n", [(1, "FIXME: broken")]),
        ("a.js", "// todo lower\n// TODOS\n// XXX-1234\n// a.TODO\n// @TODO: yes\n", [(5, "TODO: yes")]),
        (
            "a.md",
            "# Plan\n- [ ] TODO write\nA TODO list is a list.\nsee FIXME: here\n> **HACK** x\n",
            [(2, "TODO write"), (4, "FIXME: here"), (5, "HACK** x")],
        ),
        ("a.json", '{"a": "TODO: no"}', []),
        ("a.yaml", "a: b # TODO: c\nd: 'TODO: no'\n", [(1, "TODO: c")]),
        ("odd", "TODO: in a file of no known language\n", [(1, "TODO: in a file of no known language")]),
        ("a.py", "#\r\n# TODO: crlf\r\n", [(2, "TODO: crlf")]),
        ("a.py", "# TODO a\tb\x1b[31m\x07 c\n", [(1, "TODO a b [31m c")]),
    ],
)
def test_marks_are_found_where_people_leave_them(
    survey_text: Survey, path: str, text: str, expected: list[tuple[int, str]]
) -> None:
    """One note per line, in comments, documenting strings and prose; words about marks are none."""
    assert [(note.line, note.text) for note in survey_text(path, text).notes] == expected


def test_a_note_cites_its_place_and_is_cut(survey_text: Survey) -> None:
    """The citation is path and line; a long text ends with an ellipsis."""
    (note,) = survey_text("src/a b.py", "\n# TODO " + "x" * 1_000).notes
    assert note.citation == "src/a b.py#L2"
    assert len(note.text) == MAX_NOTE_CHARS
    assert note.text.endswith("x…")


def test_of_too_many_notes_the_first_stay_and_the_rest_are_counted(survey_text: Survey) -> None:
    """A file of marks alone stays a small finding and tells how many it held."""
    finding = survey_text("a.sh", "# TODO\n" * 2_500)
    assert [note.line for note in finding.notes] == list(range(1, 1_001))
    assert finding.notes_dropped == 1_500
