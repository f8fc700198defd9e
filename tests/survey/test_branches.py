"""Branches: what counts as one, in which languages, and whose it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessiontree.survey.branches import with_branches
from sessiontree.survey.definitions import Definition
from sessiontree.survey.finding import FileFinding

Survey = Callable[[str, str], FileFinding]

FUNCTIONS = [
    ("a.c", "int f(int a) {\n  return 1;\n}\n", 1),
    ("a.c", "int f(int a) {\n  if (a && b || c) return a ? 1 : 2;\n}\n", 5),
    ("a.c", "int f(int a) {\n#if A\n  for (;;) while (b) ;\n#endif\n}\n", 3),
    ("a.c", "int f(int a) {\n  switch (a) { case 1: case 2: break; default: ; }\n}\n", 3),
    ("a.c", 'int f(int a) {\n  // if a && b\n  puts("if (a && b)"); /* while */\n}\n', 1),
    ("a.java", "class A {\n  void f(Map<A, ? extends B> a) {\n    try { } catch (E e) { }\n  }\n}\n", 2),
    ("a.ts", "function f(a?: number) {\n  return a?.b ?? (c ? 1 : 2);\n}\n", 2),
    ("a.go", "func f() {\n\tfor {\n\t\tif a || b {\n\t\t}\n\t}\n}\n", 4),
    ("a.rs", "fn f() {\n  match a { 1 => 2, _ => 3 };\n  let b = || g()?;\n  if a && b { }\n}\n", 5),
    ("a.rb", "def f\n  return 1 if a and b\n  case c\n  when 1 then 2\n  end\nend\n", 4),
    ("a.lua", "function f()\n  if a and b then\n  elseif c then\n  end\nend\n", 4),
    ("a.sh", "f() {\n  if a && b; then c; fi\n  case $d in x) ;; y) ;; esac\n}\n", 5),
    ("a.f90", "subroutine f\n  if (a .and. b) then\n  end if\nend subroutine\n", 3),
    ("a.py", "def f(:\n    if a and b: pass\n", 3),
    ("a.hs", "f :: Int\nf = if a then b else c\n", 0),
]


@pytest.mark.parametrize(("path", "text", "complexity"), FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_branching_words_and_operators_count(
    survey_text: Survey, path: str, text: str, complexity: int
) -> None:
    """One more than the branches outside comments and strings; 0 where the survey can't tell."""
    finding = survey_text(path, text)
    (function,) = [one for one in finding.definitions if one.kind == "function"]
    assert (function.name.rpartition(".")[2], function.complexity) == ("f", complexity)
    assert not finding.is_parsed


def test_branch_belongs_to_the_innermost_definition() -> None:
    """What stands in a function or class inside is not counted outside; what follows it is."""
    lines = ["f {", "if", "g {", "if && if", "}", "if || if", "A {", "if", "}", "if", "}", "if"]
    definitions = (
        Definition("function", "f", 1, 11),
        Definition("function", "g", 3, 5),
        Definition("class", "A", 7, 9),
    )
    counted = with_branches(definitions, lines, "C", 100)
    assert [one.complexity for one in counted] == [1 + 1 + 3 + 1, 1 + 3, 0]


def test_generated_lines_are_passed_by() -> None:
    """A line longer than the bound has no branches."""
    definitions = (Definition("function", "f", 1, 2),)
    lines = ["if " * 50, "if if"]
    assert [one.complexity for one in with_branches(definitions, lines, "C", 100)] == [3]
    assert [one.complexity for one in with_branches(definitions, lines, "C", 200)] == [53]
