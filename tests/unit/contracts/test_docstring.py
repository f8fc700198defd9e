"""Docstrings read for what they say of a tool and its parameters."""

from __future__ import annotations

import pytest

from sessiontree.contracts.tools.decorator import read_docstring


def test_text_before_the_first_section_is_the_description() -> None:
    """Paragraphs and lists in it stay; what comes back is not what is done."""
    text = """Find files.

        Patterns:
          - *.py

        Returns:
            Paths.
        """
    assert read_docstring(text).description == "Find files.\n\nPatterns:\n  - *.py"
    assert read_docstring(text).parameters == {}


def test_entries_are_joined_to_one_line() -> None:
    """Types in brackets go, colons in the text stay, blank lines between entries do not matter."""
    text = """Do it.

    Args:
        path: Where: relative
            to the root.

        limit (int, optional): How many.
        options(dict[str, int]):
            Named numbers:
              deep ones too.
        naïve_name: Any letters.

    Raises:
        ValueError: never.
    """
    assert read_docstring(text).parameters == {
        "path": "Where: relative to the root.",
        "limit": "How many.",
        "options": "Named numbers: deep ones too.",
        "naïve_name": "Any letters.",
    }


def test_text_at_the_margin_ends_the_arguments() -> None:
    """It belongs to no parameter; another section's entries neither."""
    text = "Do it.\n\nArguments:\n    a: First.\n\nNote that\n    b: is no entry.\nReturns:\n    c: neither."
    assert read_docstring(text).parameters == {"a": "First."}
    assert read_docstring(text).description == "Do it."


@pytest.mark.parametrize("text", ["", "   \n  ", "Args:\n    a: First."])
def test_text_may_describe_nothing(text: str) -> None:
    """Then the description is empty, and somebody else complains."""
    assert read_docstring(text).description == ""


def test_lines_before_the_first_entry_belong_to_none() -> None:
    """Arguments that start with words are read from their first entry on."""
    assert read_docstring("Do it.\n\nArgs:\n    some words\n    a: First.").parameters == {"a": "First."}
