"""Symbols: what a text of each language defines, calls and imports; hostile texts end within bounds."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.survey.source.languages import list_grammar_names
from sessiontree.survey.source.symbols import Symbol, read_symbols
from tests.example_fixtures import examples


@dataclass(frozen=True)
class Sample:
    """A small text, and what is in it."""

    text: str
    imports: tuple[str, ...]
    symbols: tuple[str, ...]
    """``kind name complexity calls`` of each definition."""


SAMPLES = {
    "python": Sample(
        'import os\nfrom a.b import c\nclass A:\n    """Doc."""\n    def f(self):\n'
        "        if x:\n            g()\nK = 1\n",
        ("os", "a.b"),
        ("class A 1 ", "function A.f 2 g", "constant K 1 "),
    ),
    "javascript": Sample(
        'import x from "./x";\nconst y = require("y");\n/** Doc. */\nfunction f(a) { if (a) g(a); }\n'
        "const h = (a) => a.k();\nclass A { m() { return 1; } }\n",
        ("./x", "y"),
        ("constant y 1 ", "function f 2 g", "function h 1 k", "class A 1 ", "function A.m 1 "),
    ),
    "typescript": Sample(
        'import { x } from "./x";\n/** Doc. */\nexport interface I { a: string }\ntype T = string;\n'
        "export class A { m(): void { g(); } }\nexport const v = cached(() => 1);\nenum E { X }\n",
        ("./x",),
        ("class I 1 ", "class T 1 ", "class A 1 ", "function A.m 1 g", "constant v 1 ", "class E 1 "),
    ),
    "tsx": Sample(
        'import { x } from "./x";\n/** Doc. */\nexport function App() { return <b>{f()}</b>; }\n',
        ("./x",),
        ("function App 1 f",),
    ),
    "go": Sample(
        'package a\nimport "fmt"\n// Doc.\nfunc (s *S) F() { if true { fmt.Println(1) } }\n'
        "type S struct{}\nconst K = 1\nfunc G() {}\n",
        ("fmt",),
        ("function S.F 2 Println", "class S 1 ", "constant K 1 ", "function G 1 "),
    ),
    "rust": Sample(
        "use a::b::{c, d};\n/// Doc.\npub struct S;\nimpl S {\n"
        " fn m(&self) { if x { g(); } } }\nconst K: u8 = 1;\n"
        "fn top() { S::new(); }\n",
        ("a::b",),
        ("class S 1 ", "function S.m 2 g", "constant K 1 ", "function top 1 new"),
    ),
    "java": Sample(
        "import a.b.C;\n/** Doc. */\n"
        "class A { int f(int x) { if (x>1) g(x); return 1; } A() {} }\nenum E { X }\n",
        ("a.b.C",),
        ("class A 1 ", "function A.f 2 g", "function A.A 1 ", "class E 1 "),
    ),
    "c": Sample(
        '#include "a.h"\n/* Doc. */\nstatic int *f(int x) { if (x) g(x); return 0; }\n'
        "int proto(int);\nstruct s { int a; };\n",
        ("a.h",),
        ("function f 2 g", "class s 1 "),
    ),
    "cpp": Sample(
        "#include <a.h>\n// Doc.\nint A::f(int x) { if (x) g(x); return 0; }\n"
        "class B { int m() { return 1; } };\n",
        ("a.h",),
        ("function A.f 2 g", "class B 1 ", "function B.m 1 "),
    ),
    "c_sharp": Sample(
        "using System.Text;\nnamespace N {\n/// Doc.\n"
        "class A { int F(int a) { if (a>1) G(a); return x.H(); } } }\n",
        ("System.Text",),
        ("class A 1 ", "function A.F 2 G H"),
    ),
    "ruby": Sample(
        'require "a"\n# Doc.\nclass A\n  def f\n    g() if true\n  end\nend\n',
        ("a",),
        ("class A 1 A", "function A.f 2 f g"),
    ),
    "php": Sample(
        "<?php\nuse A\\B;\n/** Doc. */\nfunction f($a) { if ($a) { g($a); } }\nclass C { function m() {} }\n",
        ("A\\B",),
        ("function f 2 g", "class C 1 ", "function C.m 1 "),
    ),
    "bash": Sample("source ./a.sh\n# Doc.\nf() { if g; then h; fi; }\n", ("./a.sh",), ("function f 2 g h",)),
    "kotlin": Sample(
        "import a.b.C\n/** Doc. */\n"
        "class A { fun f(a: Int): Int { if (a > 1) g(a); return 1 } }\nfun top() = x.y()\n",
        ("a.b.C",),
        ("class A 1 ", "function A.f 2 g", "function top 1 y"),
    ),
    "scala": Sample(
        "import a.b.C\n/** Doc. */\nobject O { def f(a: Int): Int = { if (a > 1) g(a) else h.k(a) } }\n",
        ("a.b.C",),
        ("class O 1 ", "function O.f 2 g k"),
    ),
    "swift": Sample(
        "import Foundation\n/// Doc.\n"
        "class A { func f(a: Int) -> Int { if a > 1 { g(a) }; return 1 } }\nfunc top() {}\n",
        ("Foundation",),
        ("class A 1 ", "function A.f 2 g", "function top 1 "),
    ),
}


def said(symbol: Symbol) -> str:
    """Return a definition as samples write it."""
    return f"{symbol.kind} {symbol.name} {symbol.complexity} {' '.join(symbol.calls)}"


def test_symbols_of_every_grammar_have_a_sample() -> None:
    """No language is parsed that is not tried here."""
    assert set(SAMPLES) == set(list_grammar_names())


@pytest.mark.parametrize("name", SAMPLES)
def test_symbols_calls_and_imports_are_found(name: str) -> None:
    """Definitions with qualified names, what each calls and how it branches, and what the file imports."""
    sample = SAMPLES[name]
    found = read_symbols(sample.text.encode(), name)
    assert found.imports == sample.imports
    assert tuple(map(said, found.symbols)) == sample.symbols
    assert found.problem == ""
    assert [one.doc for one in found.symbols if one.doc] == ["Doc."]


def test_symbols_have_signature_documentation_and_lines() -> None:
    """The signature ends before the body; decorators belong to it, a comment above does not."""
    text = (
        "# not this\n@cache\ndef f(\n    a: int,\n) -> str:\n"
        "    '''Say it.\n\n    More.\n    '''\n    return 'text'\n"
    )
    (one,) = read_symbols(text.encode(), "python").symbols
    assert one.signature == "def f( a: int, ) -> str"
    assert one.doc == "Say it.\n\n    More."
    assert (one.first, one.body, one.last) == (2, 10, 10)
    go = b'package a\n\n// F does it.\n// Twice.\nfunc F(a int) string {\n\treturn "x" // TODO\n}\n'
    (one,) = read_symbols(go, "go").symbols
    assert (one.signature, one.doc, one.first) == ("func F(a int) string", "F does it.\nTwice.", 5)
    assert one.words == "x TODO"


def test_symbols_know_which_lines_are_comments() -> None:
    """A comment behind code does not make its line one; a docstring does."""
    text = b'"""Doc\n\nmore."""\n# one\nx = 1  # two\n"""not a docstring"""\n'
    found = read_symbols(text, "python")
    assert found.comment_lines == frozenset({1, 2, 3, 4})
    assert found.doc == "Doc\n\nmore."
    assert [text for _, text in found.comments] == ["# one", "# two"]


HOSTILE = {
    "open brackets": ("python", b"(" * 200_000),
    "open calls": ("python", b"f(" * 150_000),
    "open functions": ("javascript", b"(function f(){" * 30_000),
    "open modules": ("rust", b"mod a {" * 50_000),
    "open blocks": ("c", b"int f(){" * 50_000),
    "nested classes": ("python", b"".join(b" " * depth + b"class A:\n" for depth in range(600))),
    "all bytes": ("cpp", bytes(range(256)) * 1_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_symbols_of_hostile_texts_end_soon(name: str) -> None:
    """Deep nesting and broken text cost seconds, not the survey; nothing is raised."""
    grammar, data = HOSTILE[name]
    started = time.monotonic()
    read_symbols(data, grammar)
    assert time.monotonic() - started < 30


def test_symbols_are_not_found_after_the_time_is_over() -> None:
    """A parse that takes too long is given up, and the file says so."""
    found = read_symbols(b"x = [" + b"1, " * 300_000 + b"]\n", "python", seconds=0.0)
    assert (found.symbols, found.imports) == ((), ())
    assert "was not parsed within 0 s" in found.problem


def test_symbols_of_bytes_that_are_not_utf8_are_found() -> None:
    """A query that compares texts, such as that of sourced scripts, meets them in every place."""
    found = read_symbols(b"\xff\xfe x\nf() { \xff; }\n", "bash")
    assert [one.name for one in found.symbols] == ["f"]


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.binary(max_size=300), st.integers(0, 300), st.integers(0, 300))
def test_symbols_lie_within_their_text(name: str, noise: bytes, cut: int, place: int) -> None:
    """Whatever bytes are in a text and wherever it ends, lines and order hold."""
    data = SAMPLES[name].text.encode()
    data = (data[:place] + noise + data[place:])[: len(data) + len(noise) - cut]
    found = read_symbols(data, name)
    lines = data.count(b"\n") + 1
    assert all(1 <= one.first <= one.last <= lines for one in found.symbols)
    assert [one.first for one in found.symbols] == sorted(one.first for one in found.symbols)
    assert all(1 <= line <= lines for line in found.comment_lines)
