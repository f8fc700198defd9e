"""Source: one file's bytes in, one finding out, whatever the bytes are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sessiontree.survey.brace_definitions import brace_definitions
from sessiontree.survey.branches import with_branches
from sessiontree.survey.decoding import decode
from sessiontree.survey.definition_patterns import patterns_of
from sessiontree.survey.definitions import Definition
from sessiontree.survey.finding import MAX_DEFINITIONS_PER_FILE, MAX_NOTES_PER_FILE, FileFinding
from sessiontree.survey.folder_imports import C_FAMILY
from sessiontree.survey.imports import find_imports, find_quoted_includes
from sessiontree.survey.indent_definitions import indent_definitions
from sessiontree.survey.languages import BINARY, Language, is_binary_name, language_of
from sessiontree.survey.lines import count_lines, lines_of
from sessiontree.survey.notes import find_notes
from sessiontree.survey.prints import WINDOW, FilePrints, is_generated, prints_of
from sessiontree.survey.python_source import PythonSource, parse_python
from sessiontree.survey.syntax import masked

MAX_LINE_CHARS = 5_000
"""Longer lines are generated text: they count as lines, but nothing is searched in them."""
HEAD_CHARS = 8_000
"""So much of a text tells its language."""


def printable_path(path: str) -> str:
    r"""Return a path that has a UTF-8 form: bytes of a name that have none appear as ``\udcXX``."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def unread(path: str, reason: str) -> FileFinding:
    """Return the finding of a file that could not be read."""
    return FileFinding(path=printable_path(path), kind="unread", language="", bytes=0, problem=reason)


def analyse(path: str, data: bytes, total_bytes: int, window: int = WINDOW) -> FileFinding:
    """Return what a file holds.

    Args:
        path: Its path relative to the surveyed root, ``/`` between parts.
        data: Its bytes, or the first of them.
        total_bytes: How many the whole file has; more than ``len(data)`` means only its head was read.
        window: Of how many prints in a row one is kept, see ``prints.py``.

    Returns:
        The finding; ``problem`` says what could not be read, decoded or parsed, empty when all could.

    Contract: pure and never raises; time and memory linear in ``len(data)``.
    """
    path = printable_path(path)
    total_bytes = max(total_bytes, len(data))
    try:
        return _analyse(_File(path, data, total_bytes, window))
    except Exception as error:  # noqa: BLE001 - one odd file must not cost the findings of all others
        return unread(path, f"analysis failed: {type(error).__name__}: {error}").model_copy(
            update={"bytes": total_bytes}
        )


@dataclass(frozen=True, slots=True)
class _File:
    """What is analysed; members as :func:`analyse`."""

    path: str
    data: bytes
    total_bytes: int
    window: int

    @property
    def is_cut(self) -> bool:
        """Whether only the head was read."""
        return self.total_bytes > len(self.data)


def _analyse(file: _File) -> FileFinding:
    problems = []
    if file.is_cut:
        problems.append(f"only the first {len(file.data):,} of {file.total_bytes:,} bytes were read")
    decoded = decode(file.data, cut=file.is_cut)
    if decoded is None or (decoded.problem and is_binary_name(file.path)):
        return _binary(file, problems)
    if decoded.problem:
        problems.append(decoded.problem)
    return _text(file, decoded.text, problems)


def _binary(file: _File, problems: list[str]) -> FileFinding:
    expected = language_of(file.path, "")
    if is_binary_name(file.path):
        problems = []  # a head tells as much about it as the whole
    elif expected.role == "code":
        problems = [*problems, f"named like {expected.name} but is no text; counted as binary"]
    return FileFinding(
        path=file.path, kind="binary", language=BINARY, bytes=file.total_bytes, problem="; ".join(problems)
    )


def _text(file: _File, text: str, problems: list[str]) -> FileFinding:
    language = language_of(file.path, text[:HEAD_CHARS])
    lines = lines_of(text)
    without_comments = masked(text, language.syntax)
    masked_lines = lines if without_comments is text else lines_of(without_comments)
    python: PythonSource | None = None
    if language.name == "Python" and not file.is_cut:
        parsed = parse_python(text, masked_lines)
        if isinstance(parsed, str):
            problems.append(parsed)
        else:
            python = parsed
    documented = _lines_in(python.documented) if python is not None else frozenset()
    count = count_lines(lines, masked_lines, sum(1 for line in documented if lines[line - 1].strip()))
    if python is not None:
        definitions, imports, references = python.definitions, python.imports, python.brought
    else:
        found = definitions_in(without_comments, masked_lines, language, problems)
        definitions = with_branches(found, masked_lines, language.name, MAX_LINE_CHARS)
        imports = references = find_imports(text, lines, masked_lines, language.name)
        if language.name in C_FAMILY:
            references = find_quoted_includes(text, lines, masked_lines)
    notes = tuple(find_notes(file.path, text, lines, language, documented))
    functions = sum(1 for definition in definitions if definition.kind == "function")
    prints: FilePrints | None = None
    # the beginning of a file tells nothing of how the file ends
    if language.role == "code" and not file.is_cut and not is_generated(text):
        importing = _lines_in(python.importing) if python is not None else frozenset()
        prints = prints_of(file.path, file.data, masked_lines, documented | importing, file.window)
    return FileFinding(
        path=file.path,
        kind="text",
        language=language.name,
        bytes=file.total_bytes,
        lines=count.lines,
        code=count.code,
        comment=count.comment,
        blank=count.blank,
        functions=functions,
        classes=len(definitions) - functions,
        definitions=_longest(definitions),
        notes=notes[:MAX_NOTES_PER_FILE],
        notes_dropped=max(0, len(notes) - MAX_NOTES_PER_FILE),
        imports=imports,
        references=references,
        is_parsed=python is not None,
        prints=prints,
        problem="; ".join(problems),
    )


def _lines_in(stretches: Iterable[tuple[int, int]]) -> frozenset[int]:
    return frozenset(line for first, last in stretches for line in range(first, last + 1))


def definitions_in(
    without_comments: str, masked_lines: list[str], language: Language, problems: list[str]
) -> tuple[Definition, ...]:
    """Return the definitions of a text, by line, found without a syntax tree; complexities are not counted.

    Args:
        without_comments: See ``syntax.masked``.
        masked_lines: Its lines.
        language: What it is written in.
        problems: Gets a sentence for what was not searched.
    """
    patterns = patterns_of(language.name)
    if patterns is None:
        return ()
    if max(map(len, masked_lines), default=0) > MAX_LINE_CHARS:
        problems.append(f"lines over {MAX_LINE_CHARS:,} characters were not searched for definitions")
        without_comments = "\n".join(line if len(line) <= MAX_LINE_CHARS else "" for line in masked_lines)
    found: tuple[Definition, ...] = ()
    if patterns.body == "braces":
        found = brace_definitions(without_comments, language.name, patterns.lines)
    elif patterns.lines is not None:
        found = indent_definitions(without_comments, patterns.lines)
    return found


def _longest(definitions: tuple[Definition, ...]) -> tuple[Definition, ...]:
    """Return the definitions by line; of too many the longest."""
    if len(definitions) <= MAX_DEFINITIONS_PER_FILE:
        return definitions
    longest = sorted(definitions, key=lambda one: (-one.lines, one.line))[:MAX_DEFINITIONS_PER_FILE]
    return tuple(sorted(longest, key=lambda one: one.line))
