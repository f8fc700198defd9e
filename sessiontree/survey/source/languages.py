"""Languages: which language a file is in, and the tree-sitter grammar and queries that read it.

The table is ``languages.toml``. Definitions and calls come from the ``tags.scm`` of the grammar's wheel and
from our own queries next to this file. Each grammar is a wheel of its own, loaded with the first file of its
language.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias

import tree_sitter
from tree_sitter import Query

Role: TypeAlias = Literal["code", "data", "prose", "binary"]

BINARY = "Binary"
"""What files are counted as that are not text."""
_SHEBANG = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*)?(?:\S*/)?([A-Za-z]+)")


@dataclass(frozen=True, slots=True)
class Language:
    """One language of the table."""

    name: str
    role: Role
    comment: tuple[str, ...] = ()
    """What a line begins with that is nothing but a comment; for files that no grammar reads."""
    grammar: str | None = None
    """Key of its grammar; None = its lines are counted, and nothing else."""
    main: re.Pattern[str] | None = None
    """Finds the line at which a program starts."""


OTHER = Language("Other text", "data")


@cache
def _build_tables() -> tuple[
    dict[str, Language], dict[str, Language], dict[str, Language], dict[str, Language]
]:
    """Return the languages by file name, by suffix, by program of a line ``#!…``, and by their own name."""
    rows = tomllib.loads(resources.files("sessiontree.survey").joinpath("languages.toml").read_text("utf-8"))
    tables: tuple[dict[str, Language], ...] = ({}, {}, {}, {})
    for name, row in rows.items():
        main = re.compile(row["main"], re.MULTILINE) if "main" in row else None
        one = Language(name, row["role"], tuple(row.get("comment", "").split()), row.get("grammar"), main)
        for table, column in zip(tables, ("names", "suffixes", "programs"), strict=False):
            table.update(dict.fromkeys(row.get(column, "").split(), one))
        tables[3][name] = one
    return tables[0], tables[1], tables[2], tables[3]


def detect_language(path: str, head: str = "") -> Language:
    """Return the language of a text file.

    Args:
        path: Its path; only the last part counts.
        head: Its beginning; a line ``#!…`` decides where the name says nothing.
    """
    by_name, by_suffix, by_program, _ = _build_tables()
    name = path.rpartition("/")[2].lower()
    stem, _, suffix = name.rpartition(".")
    found = by_name.get(name) or (by_suffix.get(suffix) if stem else None)
    if found is None and (shebang := _SHEBANG.match(head)) is not None:
        found = by_program.get(shebang[1])
    return found or OTHER


def find_role(name: str) -> Role:
    """Return the role of the language of this name; ``data`` for names that are not in the table."""
    return _build_tables()[3].get(name, OTHER).role


_COMMENTS = "comment line_comment block_comment multiline_comment doc_comment"
_STRINGS = "string string_literal interpreted_string_literal template_string raw_string_literal"

# Documentation is found by `symbols.py`; matching it in a query would cost a match per comment.
_DOC = re.compile(r"\(comment\)\*\s*@doc\s*\.\s*")
_DIRECTIVE = re.compile(r"\(#(?:strip|select-adjacent|set-adjacent)!\s[^)]*\)(?=\s)")


@dataclass(frozen=True, slots=True)
class LanguageGrammar:
    """What reads the files of one language."""

    language: tree_sitter.Language
    tags: Query
    """Captures ``@definition.*``, ``@scope*``, ``@reference.call`` with ``@name``."""
    marks: Query
    """Captures ``@import``, ``@public``, ``@listed``, ``@branch``, ``@comment``, ``@string``."""


@cache
def find_grammar(name: str) -> LanguageGrammar:
    """Return a grammar by its key in the table of languages.

    Raises:
        ModuleNotFoundError: its wheel is missing; it is part of the extra ``survey``.
    """
    family = _name_family(name)
    module = importlib.import_module(f"tree_sitter_{family}")
    # a wheel with several grammars has a function for each
    language = tree_sitter.Language((getattr(module, f"language_{name}", None) or module.language)())
    wheels = ("javascript", "typescript") if family == "typescript" else (family,)
    tags = [_query("tags.scm", f"tree_sitter_{one}") for one in wheels]
    tags.append(_query(f"{family}.tags.scm"))
    marks = [_query(f"{family}.imports.scm")]
    for kinds, capture in ((_query("branches.txt"), "branch"), (_COMMENTS, "comment"), (_STRINGS, "string")):
        marks.append(_build_kinds_query(language, kinds.split(), capture))
    # a directive is dropped where it is a condition of its own; the pattern around it stays
    wheel = _DIRECTIVE.sub("", _DOC.sub("", "\n".join(tags)))
    return LanguageGrammar(language, Query(language, wheel), Query(language, "\n".join(marks)))


def list_grammar_names() -> tuple[str, ...]:
    """Return the keys of all grammars."""
    return tuple(sorted({one.grammar for one in _build_tables()[3].values() if one.grammar is not None}))


def _name_family(grammar: str) -> str:
    """Return what the wheel and our queries of a grammar are named for."""
    return "typescript" if grammar == "tsx" else grammar


def check_installed() -> None:
    """Check that all wheels of the extra ``survey`` are there.

    Raises:
        ModuleNotFoundError: one is missing.
    """
    for module in sorted({f"tree_sitter_{_name_family(name)}" for name in list_grammar_names()}):
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def _query(name: str, module: str = "sessiontree.survey") -> str:
    """Return the text of one of a package's queries; empty if it has none."""
    place = resources.files(module).joinpath("queries", name)
    return place.read_text("utf-8") if place.is_file() else ""


def _build_kinds_query(language: tree_sitter.Language, kinds: Iterable[str], capture: str) -> str:
    """Return a query for those of the kinds of node that the language has."""
    known = [f"({kind})" for kind in kinds if language.id_for_node_kind(kind, True) is not None]
    return f"[{' '.join(known)}] @{capture}" if known else ""
