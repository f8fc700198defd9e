"""Languages: the table is large and sound, and files are recognised by name, first line and content."""

from __future__ import annotations

import pytest

from sessiontree.survey.definition_patterns import HEADED, METHODS, patterns_of
from sessiontree.survey.imports import find_imports
from sessiontree.survey.languages import OTHER_TEXT, is_binary_name, language_named, language_of, languages
from sessiontree.survey.syntax import SYNTAXES, scanner


def test_the_table_holds_at_least_45_programming_languages() -> None:
    """The survey names 45 programming languages or more, and data, markup and prose beside them."""
    roles = [language.role for language in languages()]
    assert roles.count("code") >= 45
    assert {"data", "markup", "prose"} <= set(roles)


def test_nothing_in_the_table_is_claimed_twice() -> None:
    """A name, extension, file name or interpreter belongs to one language."""
    rows = languages()
    for claims in (
        [row.name for row in rows],
        [extension for row in rows for extension in row.extensions],
        [name for row in rows for name in row.names],
        [program for row in rows for program in row.interpreters],
    ):
        assert len(claims) == len(set(claims))


def test_every_language_has_a_syntax_whose_pattern_compiles() -> None:
    """No row names a syntax that is missing, and no syntax is without a language."""
    assert {language.syntax for language in languages()} == set(SYNTAXES)
    for key in SYNTAXES:
        scanner(key)


def test_every_definition_and_import_pattern_compiles_and_belongs_to_a_language() -> None:
    """A misspelt language name in a pattern table would never be asked for."""
    names = {language.name for language in languages()}
    assert names >= HEADED | METHODS
    found = {name for name in names if patterns_of(name) is not None}
    assert len(found) >= 40
    for name in names:
        find_imports("import x\n", ["import x"], ["import x"], name)


@pytest.mark.parametrize(
    ("path", "head", "expected"),
    [
        ("a/b.py", "", "Python"),
        ("B.PY", "", "Python"),
        ("x.tsx", "", "TypeScript"),
        ("Makefile", "", "Makefile"),
        ("Makefile.am", "", "Makefile"),
        ("deploy/Dockerfile.dev", "", "Dockerfile"),
        ("config.h.in", "", "C"),
        ("CMakeLists.txt", "", "CMake"),
        ("notes.txt", "", "Text"),
        ("LICENSE", "", "Text"),
        ("Cargo.lock", "", "TOML"),
        ("run", "#!/usr/bin/env -S FOO=1 python3.12 -u\n", "Python"),
        ("run", "#!/bin/bash\n", "Shell"),
        ("run", "#! /usr/bin/perl -w\n", "Perl"),
        ("run", "#!/usr/bin/env\n", OTHER_TEXT),
        ("run", "#!", OTHER_TEXT),
        ("page", "<!DOCTYPE html>\n<html>", "HTML"),
        ("feed", "<?xml version='1.0'?>", "XML"),
        ("x.unknown", "words", OTHER_TEXT),
        ("archive.", "", OTHER_TEXT),
        ("", "", OTHER_TEXT),
        (".gitignore", "", "Ignore list"),
        ("build.cfg", "", "INI"),
        ("build.zzz", "", OTHER_TEXT),
    ],
)
def test_a_file_is_recognised_by_name_then_first_line(path: str, head: str, expected: str) -> None:
    """Whole name, then extension, then the `#!` line or first tag decide; case does not matter."""
    assert language_of(path, head).name == expected


@pytest.mark.parametrize(
    ("path", "head", "expected"),
    [
        ("a.h", "int f(void);\n", "C"),
        ("a.h", "namespace a {\n", "C++"),
        ("a.h", "@interface A : NSObject\n", "Objective-C"),
        ("a.m", "function y = f(x)\n", "MATLAB"),
        ("a.m", "#import <Foundation/Foundation.h>\n", "Objective-C"),
        ("a.ts", "const a = 1\n", "TypeScript"),
        ("a.ts", "<?xml version='1.0'?><TS>", "XML"),
    ],
)
def test_languages_that_share_an_extension_are_told_apart_by_content(
    path: str, head: str, expected: str
) -> None:
    """A header, an `.m` or a `.ts` file is what its text looks like."""
    assert language_of(path, head).name == expected


def test_a_language_is_found_again_by_the_name_findings_carry() -> None:
    """Every name of the table and the one for other text leads back to its language."""
    for language in languages():
        assert language_named(language.name) is language
    assert language_named(OTHER_TEXT).role == "prose"
    with pytest.raises(KeyError):
        language_named("Klingon")


def test_formats_that_are_never_text_are_known_by_extension() -> None:
    """The last extension counts, in any case; no extension is no binary."""
    assert is_binary_name("a/B.PNG")
    assert is_binary_name("x.tar.gz")
    assert not is_binary_name("x.py")
    assert not is_binary_name("gz.d/readme")
