"""The lines of a file after the hunks of a patch, as Codex' own program makes them; the file's own bytes."""

from __future__ import annotations

import codex_apply_patch
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError, ValidationError
from sessiontree_tools.files.patch_text import (
    FileAdded,
    FileDeleted,
    FileUpdated,
    Hunk,
    PatchLine,
    parse_patch,
)
from sessiontree_tools.files.patched_lines import PatchedText, apply_hunks
from sessiontree_tools.files.spellings import ONE_TO_ONE

LINES = st.sampled_from(["a", "b", "c", " a", "a ", "  b", "", "x – y", "x - y", "“q”", '"q"'])
FILES = st.lists(LINES, min_size=1, max_size=12)


def enclosed(body: str) -> str:
    """Return a patch with these lines."""
    return f"*** Begin Patch\n{body}\n*** End Patch"


def hunks_of(body: str) -> tuple[Hunk, ...]:
    """Return the hunks of one file."""
    (change,) = parse_patch(enclosed(f"*** Update File: f\n{body}"))
    assert isinstance(change, FileUpdated)
    return change.hunks


def patched(text: str, body: str) -> PatchedText:
    """Return a text after hunks."""
    return apply_hunks(text, hunks_of(body))


@st.composite
def edited(draw: st.DrawFn) -> tuple[list[str], str, list[str]]:
    """Draw a file whose lines are all different, the lines of a patch, and the file that it means."""
    before = [f"{number}{line}" for number, line in enumerate(draw(FILES))]
    body: list[str] = []
    after: list[str] = []
    at = 0
    while at < len(before):
        start = draw(st.integers(at, len(before) - 1))
        end = draw(st.integers(start + 1, min(len(before), start + 4)))
        after += before[at:start]
        body.append("@@" if start == at or draw(st.booleans()) else f"@@ {before[start - 1]}")
        for line in before[start:end]:
            mark = draw(st.sampled_from(" -"))
            new = draw(st.lists(LINES, max_size=2))
            body += [mark + line, *(f"+{each}" for each in new)]
            after += [*([line] if mark == " " else []), *new]
        at = end
        if draw(st.booleans()):
            break
    return before, "\n".join(body), after + before[at:]


@st.composite
def patches(draw: st.DrawFn) -> str:
    """Draw the lines of a patch that may fit nowhere."""
    body = []
    for _ in range(draw(st.integers(1, 3))):
        body.append(draw(st.sampled_from(["@@", "@@ a", "@@ x - y", "@@ b"])))
        marked = draw(st.lists(st.tuples(st.sampled_from(" -+"), LINES), min_size=1, max_size=4))
        if not [line for mark, line in marked if mark != "+"][-1:] > [""]:
            # Codex drops an empty line at the end that the file lacks, also where it is to go.
            marked.append((" ", "c"))
        body += [mark + line for mark, line in marked]
    if [line for line in body if line.startswith("@@")] == ["@@"] and draw(st.booleans()):
        body.append("*** End of File")  # after an anchor, Codex may find a place before it
    return "\n".join(body)


def by_codex(text: str, body: str) -> str | None:
    """Return what Codex' program makes of a text; None if it refuses."""
    try:
        found = codex_apply_patch.apply_patch_in_memory(enclosed(f"*** Update File: f\n{body}"), {"f": text})
    except Exception:  # noqa: BLE001 - its errors have no class that Python can catch
        return None
    return str(found.files["f"])


def spelled(text: str | None) -> list[str] | None:
    """Return lines as they look.

    Codex writes kept lines as the patch spells them, and drops an empty line at the end of a file.
    """
    if text is None:
        return None
    lines = [line.strip().translate(ONE_TO_ONE) for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


@given(FILES, patches())
def test_patches_do_what_they_do_to_codex(lines: list[str], body: str) -> None:
    """The same places, the same lines, the same refusals, also where lines only look alike."""
    text = "".join(f"{line}\n" for line in lines)
    try:
        ours: str | None = patched(text, body).text
    except ExecutionError:
        ours = None
    assert spelled(ours) == spelled(by_codex(text, body))


@given(edited(), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from(["", "\ufeff"]))
def test_only_the_changed_lines_of_a_file_change(
    case: tuple[list[str], str, list[str]], end: str, is_open: bool, mark: str
) -> None:
    """Byte for byte: the line ends, whether the last line has one, and the mark at the head stay."""
    before, body, after = case
    assume(len(before) > 1 or not is_open)  # one line without an end shows no line end
    last = "" if is_open else end
    found = patched(mark + end.join(before) + last, body)
    assert found.text == mark + end.join(after) + (last if after else "")
    assert {hunk.differs_in for hunk in found.hunks} == {""}


@pytest.mark.parametrize(
    ("text", "body", "expected"),
    [
        ("a\nb\na\nb\n", "@@ b\n a\n-b\n+c", "a\nb\na\nc\n"),  # an anchor skips the first place
        (
            "def f():\n  x\ndef g():\n  x\n",
            "@@ def g():\n@@   x\n+  y",
            "def f():\n  x\ndef g():\n  x\n  y\n",
        ),
        ("a\nb\n", "@@ a\n+new", "a\nnew\nb\n"),  # nothing but an anchor: below it
        ("a\n", "+new", "a\nnew\n"),  # no place at all: at the end
        ("a\r\nb", "+new", "a\r\nb\r\nnew"),
        ("", "+new", "new\n"),
        ("a\nb\na\n", "-a\n+z\n*** End of File", "a\nb\nz\n"),
        ("x\n\ty  \n", " x\n-y\n+z", "x\nz\n"),  # spaces differ
        (" a\na \n", "-a\n+b", " a\nb\n"),  # spaces at an end differ less than indentation
        ("a\n", "-a\n+b\n\n", "b\n"),  # the empty line is layout
        ("a\n\nb\n", " a\n\n-b\n+c", "a\n\nc\n"),  # and here it is a line
        ("*** End Patch\n", "-*** End Patch\n+*** Begin Patch", "*** Begin Patch\n"),
        ("a\r\nb\nc\r\n", " b\n-c\n+d", "a\r\nb\nd\r\n"),  # mixed: as the line that it replaces
    ],
)
def test_places_and_line_ends(text: str, body: str, expected: str) -> None:
    """Cases in which programs for patches differ."""
    assert patched(text, body).text == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("-a\n+1\n@@\n-none\n+2", r"change 2 \(line 5 of the patch\).*no line of the file looks like 'none'"),
        ("@@ none\n-a\n+1", "no line of the file looks like 'none'"),
        ("-b\n+1\n@@\n-a\n+2", "in line 1, before the end of the change that precedes it"),
        ("-a\n-c\n+1", "not one after the other, from 'a' on"),
        ("-a\n+1\n*** End of File", "not at the end"),
    ],
)
def test_change_that_fits_nowhere_says_why(body: str, message: str) -> None:
    """Which change, and what to look at."""
    with pytest.raises(ExecutionError, match=message):
        patched("a\nb\nc\n", body)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "begins with"),
        ("hello", 1, "begins with"),
        ("*** Begin Patch\n*** Add File: a\n+x", 3, "ends with"),
        ("*** Begin Patch\n*** End Patch", 2, "no file"),
        ("*** Begin Patch\n*** End Patch\nand more", 3, "ends with"),
        (enclosed("*** Rename File: a"), 2, "expected"),
        (enclosed("*** Add File:"), 2, "no path"),
        (enclosed("*** Add File: a\nx"), 3, "begins with '\\+'"),
        (enclosed("*** Update File: a"), 3, "no change of 'a' follows"),
        (enclosed("*** Update File: a\n@@"), 3, "follows '@@'"),
        (enclosed("*** Update File: a\n@@ x\nx"), 4, "' ', '-' or"),
        (enclosed("*** Update File: a\n-x\n*** End of File\n-y"), 5, "expected '@@'"),
        (enclosed("*** Delete File: a\n-x"), 3, "expected"),
    ],
)
def test_what_is_no_patch_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    """The model sees which line it has to mend."""
    with pytest.raises(ValidationError, match=rf"line {line} of the patch.*{message}") as caught:
        parse_patch(text)
    assert caught.value.field == "/patch"


@pytest.mark.parametrize(
    "around",
    ["{}", "\n\n{}\n\n", "<<'EOF'\n{}\nEOF", '<<"PATCH"\n{}\nPATCH\n', "apply_patch <<EOF\n{}\nEOF"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_stands_around_a_patch_is_taken_off(around: str, end: str) -> None:
    """A here-document, empty lines, and CRLF."""
    text = around.format(enclosed("*** Add File: a b\n+x\n+\n\n*** Delete File: c")).replace("\n", end)
    assert parse_patch(text) == (FileAdded("a b", ("x", "")), FileDeleted("c"))


def test_lines_of_a_hunk() -> None:
    """Each with its mark; an empty one may be layout."""
    (hunk,) = hunks_of("@@ class A:\n@@  def f():\n a\n\n-b\n+c\n*** End of File")
    assert hunk.anchors == ("class A:", " def f():")
    assert hunk.is_at_end
    assert hunk.lines == (
        PatchLine(" ", "a"),
        PatchLine(" ", "", is_bare=True),
        PatchLine("-", "b"),
        PatchLine("+", "c"),
    )


@pytest.mark.covers("S4")
def test_no_change_searches_the_file_again() -> None:
    """Each of a thousand looks at the places of its rarest line alone, though most lines are alike."""
    count = 1_000
    lines = [f"line {number % 7}" if number % 10 else f"mark {number}" for number in range(count * 10)]
    body = "\n".join(
        f"@@\n-mark {number * 10} \n+new {number}\n line {(number * 10 + 1) % 7}" for number in range(count)
    )
    looks = 0

    def stop() -> bool:
        nonlocal looks
        looks += 1
        return False

    hunks = hunks_of(body)
    found = apply_hunks("".join(f"{line}\n" for line in lines), hunks, stop)
    assert len(found.hunks) == looks == count
