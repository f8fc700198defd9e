"""Languages: the table of those the survey knows, and which one a file is written in.

Room: names, extensions, interpreters. How comments and strings look is ``syntax.py``'s matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

Role: TypeAlias = Literal["code", "data", "markup", "prose"]

OTHER_TEXT = "Other text"
"""What a text file of no known language is counted as."""
BINARY = "Binary"
"""What a file that is no text is counted as."""


@dataclass(frozen=True, slots=True)
class Language:
    """One language and how its files are recognised; names and extensions in lower case, without dots."""

    name: str
    role: Role
    syntax: str
    """Key of ``syntax.SYNTAXES``."""
    extensions: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Whole file names."""
    interpreters: tuple[str, ...] = ()
    """Programs a ``#!`` line may name, without version digits."""


# name | syntax | extensions | whole file names | interpreters
_CODE = """
Ada | ada | adb ads
Arduino | c | ino
Assembly | assembly | asm s
Awk | hash | awk | | awk gawk mawk nawk
Batch | batch | bat cmd
C | c | c h
C# | csharp | cs csx
C++ | cpp | cc cpp cxx c++ hh hpp hxx h++ ipp tpp inl
CMake | cmake | cmake | cmakelists.txt
COBOL | cobol | cbl cob cpy
CUDA | cpp | cu cuh
Clojure | lisp | clj cljs cljc edn | | clojure bb
CoffeeScript | coffee | coffee
Common Lisp | lisp | lisp lsp cl asd | | sbcl clisp
Crystal | ruby | cr | | crystal
Cython | python | pyx pxd pxi
D | cpp | d di
Dart | java | dart | | dart
Dockerfile | hash | dockerfile | dockerfile containerfile
Elixir | elixir | ex exs | | elixir
Elm | haskell | elm
Emacs Lisp | lisp | el | .emacs
Erlang | erlang | erl hrl | rebar.config | escript
F# | ocaml_lines | fs fsi fsx
Fish | shell | fish | | fish
Fortran | fortran | f f77 f90 f95 f03 f08 for ftn
GDScript | python | gd
GLSL | c | glsl vert frag geom comp tesc tese
GraphQL | python | graphql gql
Go | go | go
Groovy | groovy | groovy gradle gvy | jenkinsfile | groovy
HCL | hcl | tf tfvars hcl
HLSL | c | hlsl fx
Haskell | haskell | hs lhs hsc | | runhaskell runghc
Java | java | java
JavaScript | javascript | js jsx mjs cjs es6 | jakefile | node nodejs bun deno
Julia | julia | jl | | julia
Justfile | shell | just | justfile
Kotlin | kotlin | kt kts | | kotlin
Lua | lua | lua rockspec | | lua luajit
MATLAB | matlab | m
Makefile | make | mk mak make | makefile gnumakefile | make
Meson | python | | meson.build meson_options.txt meson.options
Metal | c | metal
Nim | nim | nim nims | | nim
Nix | nix | nix
OCaml | ocaml | ml mli | | ocaml
Objective-C | c | mm
PHP | php | php phtml php5 php7 | | php
Pascal | pascal | pas pp dpr lpr
Perl | perl | pl pm t | | perl
PowerShell | powershell | ps1 psm1 psd1 | | pwsh powershell
Prolog | prolog | prolog pro plt | | swipl
Protocol Buffers | c | proto
Python | python | py pyi pyw py3 | sconstruct sconscript wscript snakefile | python pypy ipython
R | r | r rmd rprofile | | rscript
Racket | lisp | rkt | | racket
Ruby | ruby | rb rake gemspec ru podspec | rakefile gemfile podfile vagrantfile brewfile | ruby jruby
Rust | rust | rs
SQL | sql | sql ddl dml psql
Scala | kotlin | scala sc sbt | | scala
Scheme | lisp | scm ss | | guile scheme
Shell | shell | sh bash zsh ksh bats | .bashrc .bash_profile .profile .zshrc | sh bash zsh ksh dash ash bats
Solidity | c | sol
Starlark | python | bzl bazel star | build workspace build.bazel workspace.bazel
Svelte | web | svelte
Swift | swift | swift | | swift
Tcl | hash | tcl tk | | tclsh wish
Thrift | php | thrift
TypeScript | javascript | ts tsx mts cts | | tsx ts-node
VHDL | ada | vhd vhdl
Verilog | c | v vh sv svh
Vim Script | vim | vim | .vimrc vimrc
Visual Basic | basic | vb vbs bas frm
Vue | web | vue
WebAssembly Text | wat | wat wast
Zig | zig | zig
"""

_DATA = """
CSV | none | csv
Diff | none | diff patch
Ignore list | hash | gitignore dockerignore npmignore | .gitattributes
INI | ini | ini cfg conf cnf properties desktop service editorconfig | .npmrc .pylintrc .flake8 .coveragerc
JSON | none | json geojson jsonl ndjson webmanifest map | .babelrc .eslintrc .prettierrc
JSON with comments | jsonc | jsonc json5 code-workspace
Jupyter Notebook | none | ipynb
TOML | toml | toml | cargo.lock poetry.lock uv.lock pdm.lock pipfile
TSV | none | tsv
YAML | yaml | yaml yml clang-format | .clang-tidy
"""

_MARKUP = """
CSS | css | css
HTML | markup | html htm xhtml
Jinja | jinja | j2 jinja jinja2
LaTeX | percent | tex sty cls bib ltx
Less | scss | less
SCSS | scss | scss sass
SVG | markup | svg
XML | markup | xml xsd xsl xslt plist xaml csproj vcxproj wsdl resx rss atom
"""

_PROSE = """
AsciiDoc | none | adoc asciidoc
Markdown | none | md markdown mdx mkd
Org | none | org
reStructuredText | none | rst rest
Roff | none | man 1 3 5 7 8
Text | none | txt text log | readme license licence copying notice authors changelog changes todo
"""

_BINARY_WORDS = """
    7z a apk avi bin bmp bz2 class db dll dmg doc docx dylib ear eot exe flac gif gz ico icns jar jpeg jpg lib
    mkv mo mov mp3 mp4 npy npz o obj odt ogg otf parquet pdf pickle pkl png ppt pptx psd pyc pyd pyo rar so
    sqlite sqlite3 tar tgz tif tiff ttf war wasm wav webm webp whl woff woff2 xls xlsx xz zip zst
"""
_BINARY_EXTENSIONS = frozenset(_BINARY_WORDS.split())
_SHEBANG = re.compile(r"#![ \t]*(\S{1,200})([^\n]{0,200})")
_VERSION = re.compile(r"[\d.]+$")
_CPP_SIGN = re.compile(
    r"^[ \t]*(?:class[ \t]+\w|namespace\b|template[ \t]*<|using[ \t]+namespace|public:|private:)",
    re.MULTILINE,
)
_OBJECTIVE_C_SIGN = re.compile(r"^[ \t]*(?:@interface|@implementation|@protocol|#import)\b", re.MULTILINE)


@cache
def languages() -> tuple[Language, ...]:
    """Return every language of the table, by role, then in the table's order."""
    tables: tuple[tuple[Role, str], ...] = (
        ("code", _CODE),
        ("data", _DATA),
        ("markup", _MARKUP),
        ("prose", _PROSE),
    )
    return tuple(language for role, table in tables for language in _rows(role, table))


def _rows(role: Role, table: str) -> Iterator[Language]:
    for row in table.strip().splitlines():
        cells = [cell.strip() for cell in row.split("|")] + [""] * 3
        name, syntax, extensions, names, interpreters = cells[:5]
        yield Language(
            name, role, syntax, tuple(extensions.split()), tuple(names.split()), tuple(interpreters.split())
        )


@cache
def _by_extension() -> dict[str, Language]:
    return {extension: language for language in languages() for extension in language.extensions}


@cache
def _by_file_name() -> dict[str, Language]:
    return {name: language for language in languages() for name in language.names}


@cache
def _by_interpreter() -> dict[str, Language]:
    return {program: language for language in languages() for program in language.interpreters}


@cache
def _by_name() -> dict[str, Language]:
    named = {language.name: language for language in languages()}
    named[OTHER_TEXT] = Language(OTHER_TEXT, "prose", "none")
    return named


def language_named(name: str) -> Language:
    """Return the language of a name as findings carry it.

    Raises:
        KeyError: no language is called that.
    """
    return _by_name()[name]


def is_binary_name(path: str) -> bool:
    """Return whether the extension is one of a format that is never text."""
    return path.rpartition("/")[2].lower().rpartition(".")[2] in _BINARY_EXTENSIONS


def language_of(path: str, head: str) -> Language:
    """Return the language a text file is written in.

    Order: whole file name, extension (``x.c.in`` counts as ``x.c``), ``#!`` line, first characters. Where
    languages share an extension the content decides (``.h``, ``.m``, ``.ts``).

    Args:
        path: Its path; only the last part is looked at.
        head: The beginning of its text, a few thousand characters are enough.
    """
    name = path.rpartition("/")[2].lower()
    found = _of_name(name)
    if found is None:
        found = _of_first_line(head)
    return _of_content(found, head)


def _of_name(name: str) -> Language | None:
    found = _by_file_name().get(name)
    if found is not None:
        return found
    stem, dot, extension = name.rpartition(".")
    if dot and extension == "in":
        return _of_name(stem)
    found = _by_extension().get(extension) if dot else None
    if found is not None:
        return found
    # Dockerfile.dev, Makefile.am, LICENSE.apache; but build.so is no Starlark
    stemmed = _by_file_name().get(name.partition(".")[0])
    return stemmed if stemmed is not None and (stemmed.role == "prose" or "file" in name) else None


def _of_first_line(head: str) -> Language | None:
    shebang = _SHEBANG.match(head)
    if shebang is not None:
        program = shebang[1].rpartition("/")[2]
        if program == "env":
            words = [word for word in shebang[2].split() if not word.startswith("-") and "=" not in word]
            program = words[0].rpartition("/")[2] if words else ""
        return _by_interpreter().get(_VERSION.sub("", program).lower())
    start = head[:200].lstrip().lower()
    if start.startswith("<?xml"):
        return _by_name()["XML"]
    if start.startswith("<?php"):
        return _by_name()["PHP"]
    if start.startswith(("<!doctype html", "<html")):
        return _by_name()["HTML"]
    return None


def _of_content(found: Language | None, head: str) -> Language:
    if found is None:
        return _by_name()[OTHER_TEXT]
    if found.name == "C" and _OBJECTIVE_C_SIGN.search(head):
        return _by_name()["Objective-C"]
    if found.name == "C" and _CPP_SIGN.search(head):
        return _by_name()["C++"]
    if found.name == "MATLAB" and _OBJECTIVE_C_SIGN.search(head):
        return _by_name()["Objective-C"]
    if found.name == "TypeScript" and head.lstrip().startswith("<"):
        return _by_name()["XML"]
    return found
