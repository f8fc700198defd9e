"""Report: everything found is in it, everything cited is right, and nothing found can break it."""

from __future__ import annotations

from sessiontree.survey.definitions import Definition
from sessiontree.survey.finding import FileFinding, GroupFindings, Problem
from sessiontree.survey.joining import findings_of
from sessiontree.survey.notes import Note
from sessiontree.survey.report import MARKER, ReportMeta, is_report, render

FILES = [
    FileFinding(
        path="src/a.py",
        kind="text",
        language="Python",
        bytes=1_200,
        lines=60,
        code=40,
        comment=15,
        blank=5,
        functions=2,
        classes=1,
        definitions=(
            Definition("function", "Cache.get", 10, 39),
            Definition("function", "put", 41, 44),
            Definition("class", "Cache", 5, 40),
        ),
        notes=(Note("src/a.py", 7, "TODO: mend"),),
        imports=("os", "re"),
    ),
    FileFinding(path="readme", kind="text", language="Text", bytes=9, lines=2, code=2),
    FileFinding(path="logo.png", kind="binary", language="Binary", bytes=50),
    FileFinding(path="gone", kind="unread", language="", bytes=0, problem="can't be read: it vanished"),
]

EXPECTED = f"""{MARKER}
# Survey of `shop`

- Files: 4 in 2 top folders, 1,259 bytes
- Lines: 62, of which 40 program code; languages: 1
- Definitions: 2 functions, 1 classes and the like
- Notes: 1 (TODO, FIXME, XXX, HACK)
- Left out: 3 directories and links (version control, caches, builds, packages)
- Problems: 1
- Sessions: `1 Main, 2 Branches`

## Languages

Code is every line that is neither comment nor blank.

| Language | Files | Lines | Code | Comments | Blank | Functions | Classes | Bytes |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
| `Python` | 1 | 60 | 40 | 15 | 5 | 2 | 1 | 1,200 |
| `Text` | 1 | 2 | 2 | 0 | 0 | 0 | 0 | 9 |
| `Binary` | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 50 |

## Folders

| Folder | Files | Lines | Code | Comments | Blank | Functions | Classes | Bytes |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
| `src` | 1 | 60 | 40 | 15 | 5 | 2 | 1 | 1,200 |
| `.` | 3 | 2 | 2 | 0 | 0 | 0 | 0 | 59 |

## Largest functions

- `src/a.py#L10` `Cache.get`: 30 lines
- `src/a.py#L41` `put`: 4 lines

## Largest text files

- `src/a.py`: 60 lines, 1,200 bytes
- `readme`: 2 lines, 9 bytes

## Notes

- `src/a.py#L7` `TODO: mend`

## Most imported packages

| Package | Files |
|---|---:|
| `os` | 1 |
| `re` | 1 |

## Problems

- `gone`: `can't be read: it vanished`
"""


def test_a_report_says_all_that_was_found() -> None:
    """Overview, languages, folders, functions, files, notes, packages and problems, each with its place."""
    meta = ReportMeta("shop", 3, (("Sessions", "1 Main, 2 Branches"),))
    assert render(findings_of(FILES), meta) == EXPECTED


def test_an_empty_tree_has_a_report_too() -> None:
    """Sections without content are left out; nothing is divided by zero."""
    text = render(GroupFindings(), ReportMeta("empty"))
    assert text.startswith(f"{MARKER}\n# Survey of `empty`\n\n- Files: 0 in 0 top folders, 0 bytes\n")
    assert "##" not in text


def test_nothing_that_was_found_becomes_markdown_html_or_a_control() -> None:
    """Names and notes written to break a report stand in it as the text they are."""
    evil = "x` | <script>alert(1)</script> [a](http://b) \x1b[2J\u202e\n## Heading\n| a | b |\n|---|---|"
    findings = findings_of(
        [
            FileFinding(
                path=f"{evil}/{evil}",
                kind="text",
                language="Python",
                bytes=1,
                lines=1,
                code=1,
                definitions=(Definition("function", evil, 1, 9),),
                notes=(Note(evil, 1, evil),),
                imports=(evil,),
                problem=evil,
            )
        ]
    )
    text = render(findings, ReportMeta(evil, 0, (("Fact", evil),)))
    lines = text.split("\n")
    assert all(line.isprintable() for line in lines)
    assert lines.count(MARKER) == 1
    assert [line for line in lines if line.startswith("#")] == [
        line for line in lines if line.startswith(("# Survey of ``x`", "## ")) and "Heading" not in line[:12]
    ]
    assert not [line for line in lines if line.startswith(("<script", "| a"))]
    for line in lines[1:]:
        # outside code spans, which begin with two backticks here, nothing of the text is left
        outside = "".join(line.split("``")[::2])
        assert "<" not in outside
        assert "](" not in outside


def test_what_is_not_shown_is_counted() -> None:
    """Cut lists end with how many more there are."""
    findings = GroupFindings(
        notes=(Note("a", 1, "TODO"),),
        notes_dropped=1_234,
        problems=(Problem(path="a", text="b"),),
        problems_dropped=2,
        imports={f"p{number:02}": 1 for number in range(45)},
    )
    text = render(findings, ReportMeta("x"))
    assert "- Notes: 1,235 (" in text
    assert "And 1,234 more notes." in text
    assert "And 2 more problems." in text
    assert "And 5 more packages." in text


def test_reports_of_any_version_are_recognised_and_nothing_else() -> None:
    """The first line decides, whole and exactly."""
    assert is_report(MARKER)
    assert is_report(MARKER.replace("format 1", "format 27"))
    for other in (
        "",
        "# Survey",
        f" {MARKER}",
        f"{MARKER} ",
        MARKER.replace("1", ""),
        MARKER.replace("1", "x"),
    ):
        assert not is_report(other)
