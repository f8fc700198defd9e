"""Report: everything found is in it, everything cited is right, and nothing found can break it."""

from __future__ import annotations

from sessiontree.survey.definitions import Definition
from sessiontree.survey.finding import ComplexFunction, FileFinding, GroupFindings, Problem
from sessiontree.survey.joining import findings_of
from sessiontree.survey.notes import Note
from sessiontree.survey.prints import prints_of
from sessiontree.survey.report import MARKER, ReportMeta, is_report, render
from sessiontree.survey.spread import Spread
from sessiontree.survey.structure_report import (
    complexity_section,
    duplicates_section,
    folder_imports_section,
)

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


STRUCTURE = """## Complexity

Cyclomatic complexity (McCabe 1976): one more than the decisions of a function, each condition
counted by itself, functions inside it by themselves. Python is measured on its syntax tree; where
a tilde stands, and for functions called approximate, branching words and operators were counted.

- `a/x.py:3` `f`: 12
- `b/y.c:1` `g`: ~7

| Folder | Functions | Median | Maximum | Approximate |
|---|---:|---:|---:|---:|
| `a` | 2 | 1 | 12 | 0 |
| `b` | 1 | 7 | 7 | 1 |

## Likely duplicates

16 lines of program code, at least, stand elsewhere too, equal files not counted.
Found by fingerprints (winnowing): likely, not proven; the likeness may reach some lines further.
Comments, white space, imports, and what stands in quotes don't count; files that say they are
generated are left out. Fewer than 8 lines that count are never found, from
23 on always; in the longest files from 23 on.

- Equal files: 40 lines saved by one copy for 2: `a/x.py:1-40`, `a/z.py:1-40`

- 8 lines saved by one copy for 2: `a/x.py:13-20`, `b/y.c:14-21`

And 3 more files that could not be compared.

## Imports between folders

How many files of a folder import from another one. Counted are imports whose file or package was
found in this tree (Python, JavaScript and TypeScript by relative paths, quoted includes of the C
family, Go, Rust within a crate, Java and its relatives), so the numbers are an approximation: what
search paths and build files decide isn't known.

| From → to | Files |
|---|---:|
| `a` → `b` | 2 |
| `b` → `a` | 1 |
| `b` → `c` | 1 |

Pairs left out on the way counted 9 files.

Cycles; over its imports each of these folders leads to all others of its line:

- 2 folders: `a`, `b`
"""


def test_structure_has_its_sections() -> None:
    """The most complex functions, what stands twice, which folder leads to which, and in circles."""
    shared = [f"call_{number}(value)" for number in range(40)]
    x, z = (prints_of(path, b"same", shared, ()) for path in ("a/x.py", "a/z.py"))
    y = prints_of("b/y.c", b"other", ["first(line);", *shared[:20]], ())
    files = [
        FileFinding(
            path="a/x.py",
            kind="text",
            language="Python",
            bytes=1,
            definitions=(Definition("function", "e", 1, 2, 1), Definition("function", "f", 3, 9, 12)),
            is_parsed=True,
            imports_from=("b",),
            prints=x,
        ),
        FileFinding(path="a/z.py", kind="text", language="Python", bytes=1, imports_from=("b",), prints=z),
        FileFinding(
            path="b/y.c",
            kind="text",
            language="C",
            bytes=1,
            definitions=(Definition("function", "g", 1, 2, 7),),
            imports_from=("a", "c"),
            prints=y,
        ),
    ]
    dropped = {"prints_dropped": 3, "folder_imports_dropped": 9}
    findings = findings_of(files).model_copy(update=dropped)
    sections = (complexity_section, duplicates_section, folder_imports_section)
    assert "\n\n".join("\n".join(section(findings)) for section in sections) + "\n" == STRUCTURE
    text = render(findings, ReportMeta("x"))
    assert all("\n".join(section(findings)) in text for section in sections)


def test_long_lists_of_structure_are_cut_and_counted() -> None:
    """Forty pairs, ten members of a cycle, six places of a copy, and how many more."""
    names = [f"d{number:02}" for number in range(50)]
    circle = {name: {names[(place + 1) % 50]: 1} for place, name in enumerate(names)}
    shared = [f"call_{number}(value)" for number in range(20)]
    copies = [prints_of(f"{name}.py", name.encode(), shared, ()) for name in names[:8]]
    findings = GroupFindings(
        folder_imports=circle,
        prints=tuple(one for one in copies if one is not None),
        complexity={"d": Spread(counts=(*[0] * 49, 25), maximum=90)},
        most_complex=tuple(
            ComplexFunction(path="d/a.py", line=line, name="f", complexity=90, approximate=False)
            for line in range(1, 21)
        ),
    )
    text = render(findings, ReportMeta("x"))
    assert "| `d` | 25 | 50 or more | 90 | 0 |" in text
    assert "And 10 more pairs of folders." in text
    assert "- 50 folders: `d00`, `d01`, " in text
    assert "`d09` and 40 more" in text
    assert "`d05.py:" in text
    assert "`d06.py:" not in text
    assert " and 2 more" in text


def test_an_empty_tree_has_a_report_too() -> None:
    """Sections without content are left out; nothing is divided by zero."""
    text = render(GroupFindings(), ReportMeta("empty"))
    assert text.startswith(f"{MARKER}\n# Survey of `empty`\n\n- Files: 0 in 0 top folders, 0 bytes\n")
    assert "##" not in text


SHARED = [f"call_{number}(value)" for number in range(30)]


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
                definitions=(Definition("function", evil, 1, 9, 4),),
                imports_from=(evil,),
                prints=prints_of(f"{evil}/{evil}", b"", SHARED * 2, ()),
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
