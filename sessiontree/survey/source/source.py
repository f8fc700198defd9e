"""Source: one file's bytes in, its count and its symbols out, whatever the bytes are."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from sessiontree.survey.source.census import Findings, Place, Totals, choose_folder
from sessiontree.survey.source.checkout import decode_text, to_printable_path
from sessiontree.survey.source.languages import BINARY, Language, detect_language
from sessiontree.survey.source.manifests import parse_manifest, summarize_readme
from sessiontree.survey.source.symbols import Symbol, Symbols, read_symbols

MAX_PARSED_BYTES = 600_000
"""A larger file is generated or data: its lines are counted, and it is not parsed."""
MAX_LINE_CHARS = 20_000
"""A file with a longer line is generated or data as well."""
_HEAD_CHARS = 2_000
_MIN_COPY_LINES = 8
_MAX_COPIES = 300
_NOTE = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b[^\n]*")
_MAX_NOTE_CHARS = 160
_MAX_NAMES = 60

_FACES = re.compile(r"(?:^|/)(?:__init__\.py|lib\.rs|(?:index|main|mod)\.(?:ts|js|mjs)|doc\.go)$")
_NOT_PUBLIC = re.compile(r"(?:^|/)(?:tests?|testing|examples?|docs?|benchmarks?|scripts?|fixtures?|vendor)/")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """What one file is."""

    path: str
    language: str
    text: str
    """Empty for a file that is not text."""
    symbols: Symbols
    totals: Totals
    problem: str = ""
    """What could not be read or parsed; empty when all could."""


def describe_unread(path: str, reason: str) -> SourceFile:
    """Return what is known of a file that could not be read."""
    return SourceFile(to_printable_path(path), "", "", Symbols(), Totals(files=1), reason)


def read_source(path: str, data: bytes, total_bytes: int) -> SourceFile:
    """Return what one file is.

    Args:
        path: Relative to the root, ``/`` between parts.
        data: Its bytes, or the first of them.
        total_bytes: How many it has in all.

    Contract: blocks; never raises, whatever the bytes are. Time is bounded, see ``symbols.py``.
    """
    path = to_printable_path(path)
    total_bytes = max(total_bytes, len(data))
    is_whole = total_bytes == len(data)
    language = detect_language(path)
    decoded = None if language.role == "binary" else decode_text(data)
    if decoded is None:
        problem = f"named like {language.name}, but it is not text" if language.grammar is not None else ""
        return SourceFile(path, BINARY, "", Symbols(), Totals(files=1, bytes=total_bytes), problem)
    text, problem = decoded
    cut = "" if is_whole else f"only the first {len(data):,} of {total_bytes:,} bytes were read"
    # Asked a second time: the text can say more than the name, such as by its first line.
    language = detect_language(path, text[:_HEAD_CHARS])
    symbols = _find_symbols(text, language, is_whole=is_whole)
    totals = _compute_totals(text, language, symbols, total_bytes)
    problems = "; ".join(filter(None, (problem, cut, symbols.problem)))
    return SourceFile(path, language.name, text, symbols, totals, problems)


def _find_symbols(text: str, language: Language, *, is_whole: bool) -> Symbols:
    if language.grammar is None or not is_whole or not text.strip():
        return Symbols()
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_PARSED_BYTES:
        return Symbols(problem=f"not parsed: it is larger than {MAX_PARSED_BYTES:,} bytes")
    # Before parsing: a minified file makes a tree of millions of nodes, and says nothing about a design.
    if any(len(line) > MAX_LINE_CHARS for line in text.split("\n")):
        return Symbols(problem=f"not parsed: it has a line of more than {MAX_LINE_CHARS:,} characters")
    return read_symbols(data, language.grammar)


def _compute_totals(text: str, language: Language, symbols: Symbols, total_bytes: int) -> Totals:
    lines = split_lines(text)
    blank = sum(not line.strip() for line in lines)
    if language.grammar is not None and not symbols.problem:
        comments = symbols.comment_lines
        comment = sum(number in comments and bool(line.strip()) for number, line in enumerate(lines, 1))
    else:
        comment = sum(bool(language.comment) and line.lstrip().startswith(language.comment) for line in lines)
    kinds = Counter(one.kind for one in symbols.symbols)
    return Totals(
        files=1,
        bytes=total_bytes,
        lines=len(lines),
        code=len(lines) - blank - comment,
        comment=comment,
        blank=blank,
        functions=kinds["function"],
        classes=kinds["class"],
    )


def split_lines(text: str) -> list[str]:
    """Return a text's lines without their ends; a line end at the very end begins no further line."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def collect_findings(file: SourceFile) -> Findings:
    """Return one file's contribution to the census."""
    path, symbols = file.path, file.symbols.symbols
    functions = [one for one in symbols if one.kind == "function"]
    is_read = bool(file.language)
    return Findings(
        totals=file.totals,
        languages={file.language: file.totals} if is_read else {},
        folders={choose_folder(path): file.totals},
        about=_find_about(file),
        projects=tuple(filter(None, [parse_manifest(path, file.text)])),
        starts=_find_starts(file),
        public=_find_public(file),
        longest=tuple(Place(path=path, line=one.first, name=one.name, amount=one.lines) for one in functions),
        most_complex=tuple(
            Place(path=path, line=one.first, name=one.name, amount=one.complexity)
            for one in functions
            if one.complexity > 1
        ),
        largest=(Place(path=path, amount=file.totals.lines),) if file.text else (),
        notes=tuple(_find_notes(file)),
        copies=_find_copies(file, functions),
        imports=dict.fromkeys(find_imports(file), 1),
        problems=(Place(path=path, text=file.problem),) if file.problem else (),
        unread=int(not is_read),
    )


def _find_notes(file: SourceFile) -> Iterator[Place]:
    for line, text in file.symbols.comments:
        for found in _NOTE.finditer(text):
            row = line + text.count("\n", 0, found.start())
            yield Place(path=file.path, line=row, text=found[0].strip()[:_MAX_NOTE_CHARS])


def _find_about(file: SourceFile) -> tuple[Place, ...]:
    text = ""
    if file.path.count("/") <= 2 and re.search(r"(?i)(?:^|/)readme(?:\.\w+)?\Z", file.path):
        text = summarize_readme(file.text)
    elif _FACES.search(file.path):
        text = " ".join(file.symbols.doc.partition("\n\n")[0].split())[:400]
    return (Place(path=file.path, text=text),) if text else ()


def _find_starts(file: SourceFile) -> tuple[Place, ...]:
    if not file.text or _NOT_PUBLIC.search(file.path):
        return ()
    main = detect_language(file.path, file.text[:_HEAD_CHARS]).main
    found = main.search(file.text) if main is not None else None
    is_library = file.language == "Go" and re.search(r"^package main$", file.text, re.MULTILINE) is None
    line, text = 1, ""
    if found is not None and not is_library:
        line, text = file.text.count("\n", 0, found.start()) + 1, found[0].strip()
    elif file.path.endswith("/__main__.py"):
        package = file.path.removesuffix("/__main__.py").removeprefix("src/").replace("/", ".")
        text = f"python -m {package}"
    elif file.text.startswith("#!/"):
        text = file.text.partition("\n")[0][:_MAX_NOTE_CHARS]
    return (Place(path=file.path, line=line, text=text),) if text else ()


def _find_public(file: SourceFile) -> tuple[Place, ...]:
    """Return a package's public names where this file is the face of a package."""
    is_go_root = file.language == "Go" and file.path.count("/") == 0 and not file.path.endswith("_test.go")
    if not (is_go_root or _FACES.search(file.path)) or _NOT_PUBLIC.search(file.path):
        return ()
    shown = [name for name in file.symbols.public if not name.startswith("_")]
    return (Place(path=file.path, names=tuple(shown[:_MAX_NAMES])),) if shown else ()


def _find_copies(file: SourceFile, functions: list[Symbol]) -> tuple[Place, ...]:
    lines = file.text.split("\n")
    copies = []
    for one in sorted(functions, key=lambda one: -one.lines)[:_MAX_COPIES]:
        if one.lines < _MIN_COPY_LINES:
            break
        body = [" ".join(line.split()) for line in lines[one.first : one.last] if line.strip()]
        if len(body) >= _MIN_COPY_LINES - 1:
            digest = hashlib.blake2b("\n".join(body).encode("utf-8", "replace"), digest_size=6).hexdigest()
            copies.append(Place(path=file.path, line=one.first, name=one.name, amount=one.lines, text=digest))
    return tuple(copies)


def find_imports(file: SourceFile) -> list[str]:
    """Return the packages that a file imports, each once; relative imports lead inside and are left out."""
    names: list[str] = []
    for text in file.symbols.imports:
        if not text.startswith((".", "/")):
            parts = re.split(r"::|[/\\]", text) if "/" in text or "::" in text else text.split(".")
            # Go names a package by its host, JavaScript by its scope
            count = 3 if "." in parts[0] and len(parts) > 1 else 2 if text.startswith("@") else 1
            names.append("/".join(parts[:count]))
    return list(dict.fromkeys(names))
