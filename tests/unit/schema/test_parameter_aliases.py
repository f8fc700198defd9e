"""Other spellings of parameter names."""

from __future__ import annotations

import pytest

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.values.pointer import make_json_pointer
from sessiontree.schema.coercion import Spellings, to_camel_case, to_snake_case


@pytest.mark.parametrize(
    ("camel", "snake"),
    [
        ("filePath", "file_path"),
        ("timeoutS", "timeout_s"),
        ("path", "path"),
        ("maxURLCount", "max_url_count"),
    ],
)
def test_cases_change_into_each_other(camel: str, snake: str) -> None:
    """A run of capitals is one word."""
    assert to_snake_case(camel) == snake
    assert to_camel_case("file_path") == "filePath"
    assert to_camel_case("_private_name_") == "_privateName_"


def test_every_spelling_leads_to_the_name() -> None:
    """Cases, given aliases and their cases, Claude-style names and their cases."""
    spellings = Spellings(["path", "old_text", "newText", "max_count"], {"top_n": "max_count"})
    expected = {
        "path": ["path", "file_path", "filePath"],
        "old_text": ["old_text", "oldText", "old_string", "oldString"],
        "newText": ["newText", "new_text", "new_string", "newString"],
        "max_count": ["max_count", "maxCount", "top_n", "topN"],
    }
    for name, accepted in expected.items():
        for spelling in accepted:
            assert spellings.find_canonical(spelling) == name, spelling
    assert spellings.find_canonical("Path") is None


def test_name_of_its_own_is_never_an_alias() -> None:
    """A tool that has both ``path`` and ``file_path`` means two things by them."""
    spellings = Spellings(["path", "file_path"], {})
    assert spellings.find_canonical("file_path") == "file_path"
    assert spellings.find_canonical("filePath") == "file_path"
    assert spellings.find_canonical("path") == "path"


def test_spelling_that_fits_two_names_fits_none() -> None:
    """Nobody guesses between ``user_id`` and ``userID``."""
    spellings = Spellings(["userID", "userId"], {})
    assert spellings.find_canonical("user_id") is None
    assert spellings.find_canonical("userID") == "userID"


def test_two_spellings_of_one_parameter_are_refused_by_both_names() -> None:
    """A guard that read one of them would not see the other (REL lesson 40)."""
    spellings = Spellings(["path"], {})
    with pytest.raises(ValidationError, match="'file_path' and 'path' are two spellings") as caught:
        spellings.rename({"file_path": "a", "path": "a"})
    assert caught.value.field == "/path"
    with pytest.raises(ValidationError, match="'filePath' and 'file_path'"):
        spellings.rename({"filePath": None, "file_path": "a"})


def test_renaming_keeps_the_order_and_what_it_does_not_know() -> None:
    """Unknown names are somebody else's to refuse."""
    spellings = Spellings(["path", "limit"], {})
    assert list(spellings.rename({"Limit": 1, "filePath": 2, "limit": 3}).items()) == [
        ("Limit", 1),
        ("path", 2),
        ("limit", 3),
    ]


@pytest.mark.parametrize("aliases", [{"file": "pth"}, {"limit": "path"}])
def test_alias_that_cannot_be_meant_is_refused(aliases: dict[str, str]) -> None:
    """It leads nowhere, or hides a parameter."""
    with pytest.raises(ConfigError, match="alias"):
        Spellings(["path", "limit"], aliases)


def test_pointers_escape_what_separates_them() -> None:
    """RFC 6901: ``~`` is ``~0`` and ``/`` is ``~1``; the whole is the empty text."""
    assert make_json_pointer() == ""
    assert make_json_pointer("a/b", 0, "c~d", "") == "/a~1b/0/c~0d/"
