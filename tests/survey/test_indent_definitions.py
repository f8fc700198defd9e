"""Indent definitions: what is found, and where it ends, in the languages whose bodies are indented."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessiontree.survey.finding import FileFinding

Survey = Callable[[str, str], FileFinding]

RUBY = """
module Shop
  class Cart < Base
    def add(item)
      if item
        items << item
      end
      # end of it
    end

    def self.empty? = true

    private def total
      text = <<~SQL
        select
      SQL
    end
  end
end
"""

LUA = """
local function a()
  if x then
    return "end"
  end
end

M.b = function(self)
  return 1
end
function M:c() return 2 end
"""

PYTHON_2 = '''
class Old:
    def show(self):
        """Doc
at the left edge
        """
        print "x"

    # a comment
    def next(self):
        return 1


def last(): pass
print "end"
'''

LISP = """
(defun square (x)
  ; (defun no ())
  (* x x))
(defmacro twice (x)
  `(progn ,x ,x))
"""


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            "a.rb",
            RUBY,
            [
                ("Shop", 2, 19),
                ("Shop.Cart", 3, 18),
                ("Shop.Cart.add", 4, 9),
                ("Shop.Cart.self.empty?", 11, 11),
                ("Shop.Cart.total", 13, 17),
            ],
        ),
        ("a.lua", LUA, [("a", 2, 6), ("M.b", 8, 10), ("M:c", 11, 11)]),
        (
            "old.py",
            PYTHON_2,
            [("Old", 2, 11), ("Old.show", 3, 7), ("Old.next", 10, 11), ("last", 14, 14)],
        ),
        ("a.lisp", LISP, [("square", 2, 4), ("twice", 5, 6)]),
        (
            "a.ex",
            "defmodule A.B do\n  def run(x) do\n    x\n  end\nend\n",
            [("A.B", 1, 5), ("A.B.run", 2, 4)],
        ),
        ("a.jl", "function f(x)\n    x\nend\n", [("f", 1, 3)]),
        ("a.hs", "main :: IO ()\nmain = do\n  x\ndata T = A\n", [("main", 1, 1), ("T", 4, 4)]),
        (
            "a.f90",
            "module m\ncontains\n  pure function f(x)\n    f = x\n  end function\nend module\n",
            [("m", 1, 1), ("f", 3, 5)],
        ),
        (
            "a.sql",
            "create or replace function f() as $$\n  select 1\n$$;\ncreate table t (\n  a int\n);\n",
            [("f", 1, 2), ("t", 4, 6)],
        ),
    ],
)
def test_definitions_end_with_their_indentation(
    survey_text: Survey, path: str, text: str, expected: list[tuple[str, int, int]]
) -> None:
    """A body lasts while lines are indented deeper; a closing word below its first line belongs to it."""
    finding = survey_text(path, text)
    assert [(one.name, one.line, one.end_line) for one in finding.definitions] == expected


def test_python_that_does_not_parse_is_searched_line_by_line(survey_text: Survey) -> None:
    """A syntax error costs a problem and precision, never the definitions and imports."""
    finding = survey_text("old.py", PYTHON_2 + "import os\nfrom a.b import c\n")
    assert finding.problem.startswith("syntax error at line 7")
    assert (finding.functions, finding.classes) == (3, 1)
    assert finding.imports == ("os", "a.b")
