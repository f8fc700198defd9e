"""Files of saved programs: what is read from one, where a bad one is wrong, and what a run's text becomes."""

from __future__ import annotations

import asyncio
import json
import typing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter, ValidationError

from sessiontree.api.agents.front_matter import Malformed
from sessiontree.api.programs.program_files import load_programs, parse_saved_text, read_programs
from sessiontree.api.programs.program_signature import UnfitProgram
from sessiontree.api.programs.program_text import build_saved_text

GOOD = '''"""
Finds words
in files.

---
tools: [read, grep]
agents: scout
budget: {tokens: 1000}
timeout_s: 5
---
"""
from typing import Literal

LEAST = 3


async def main(path: str, how: Literal["all", "some"] = "all", *, least: int | None = None) -> list[str]:
    return []
'''
BAD: dict[str, tuple[str, str]] = {
    "no docstring": ("async def main(): ...\n", "1: it has no docstring"),
    "an empty one": ('"""  """\nasync def main(): ...\n', "1: its description has 0 characters"),
    "no main": ('"""Does."""\n', "it has no function main"),
    "a plain main": ('"""Does."""\n\ndef main(): ...\n', "3: main must be `async def main"),
    "no type": ('"""Does."""\nasync def main(\n    a: int, b): ...\n', "3: parameter b has no type"),
    "a type JSON has not": (
        '"""Does."""\nasync def main(a: set[int]): ...\n',
        "2: type 'set[int]' is not one of",
    ),
    "keys that are no text": (
        '"""Does."""\nasync def main(a: dict[int, str]): ...\n',
        "2: a dict of JSON has text",
    ),
    "a computed default": ('"""Does."""\nasync def main(a: int = f()): ...\n', "2: the default of a"),
    "a set as default": ('"""Does."""\nasync def main(a: Any = {1}): ...\n', "2: the default of a"),
    "more arguments": ('"""Does."""\nasync def main(*a: int): ...\n', "2: main takes parameters by name"),
    "work outside": ('"""Does."""\nasync def main(): ...\nprint(1)\n', "3: it does something outside"),
    "the inputs' name": (
        '"""Does."""\nsaved_inputs = 1\nasync def main(): ...\n',
        "2: saved_inputs holds its arguments",
    ),
    "no Python": ('"""Does."""\nasync def main(:\n', "2: it is not Python"),
    "an open end": (
        '"""Does.\n\n---\ntools: [read]\n"""\nasync def main(): ...\n',
        "1: its front matter must be",
    ),
    "no YAML": (
        '"""Does.\n\n---\ntools: [read\n---\n"""\nasync def main(): ...\n',
        "4: its front matter is not YAML",
    ),
    "a strange member": (
        '"""Does.\n\n---\ntools: [read]\ntool: a\n---\n"""\nasync def main(): ...\n',
        "5: tool",
    ),
    "a wrong member": (
        '"""\n\nDoes.\n---\n\ntimeout_s: soon\n---\n"""\nasync def main(): ...\n',
        "6: timeout_s",
    ),
}


def test_file_says_what_it_takes_and_needs() -> None:
    """Description, parameters, tools, agents, budget and time."""
    saved = parse_saved_text(Path("find.py"), GOOD)
    assert (saved.name, saved.description) == ("find", "Finds words in files.")
    assert (saved.tools, saved.agents, saved.timeout_s) == (("read", "grep"), ("scout",), 5)
    assert saved.budget is not None
    assert saved.budget.tokens == 1000
    assert saved.parameters["required"] == ["path"]
    assert saved.parameters["properties"] == {
        "path": {"type": "string"},
        "how": {"enum": ["all", "some"], "default": "all"},
        "least": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
    }


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_named_with_its_line(name: str) -> None:
    """The error says where and what."""
    text, reason = BAD[name]
    with pytest.raises(Malformed) as raised:
        parse_saved_text(Path("find.py"), text)
    assert f"find.py:{reason}" in str(raised.value) or f"find.py: {reason}" in str(raised.value)


def test_one_bad_file_does_not_stop_the_others(tmp_path: Path) -> None:
    """What is in the workspace, open to others or badly named is refused; hidden files are passed over."""
    (tmp_path / "find.py").write_text(GOOD)
    (tmp_path / "Find.py").write_text(GOOD)
    (tmp_path / "open.py").write_text(GOOD)
    (tmp_path / "open.py").chmod(0o666)
    (tmp_path / ".hidden.py").write_text("1")
    found, refused = read_programs(tmp_path)
    assert (list(found), sorted(file.path.name for file in refused)) == (["find"], ["Find.py", "open.py"])
    found, refused = read_programs(tmp_path, workspace=tmp_path)
    assert (found, len(refused)) == ({}, 3)
    (tmp_path / "open.py").unlink()
    with pytest.warns(UserWarning, match=r"saved program left out: .*Find.py"):
        assert [each.name for each in load_programs(tmp_path, tmp_path / "elsewhere")] == ["find"]


HINTS = st.recursive(
    st.sampled_from(["str", "int", "float", "bool", "None", "list", "dict", "Any", "Literal['a', 'c']"]),
    lambda inner: st.one_of(
        inner.map("list[{}]".format),
        inner.map("dict[str, {}]".format),
        inner.map("Optional[{}]".format),
        st.tuples(inner, inner).map(lambda both: f"Union[{both[0]}, {both[1]}]"),
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.sampled_from([None, True, 1, 1.5, "a", "b"]),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["k"]), inner)),
    max_leaves=3,
)


@given(HINTS, VALUES)
def test_parameter_takes_what_its_type_takes(hint: str, value: Any) -> None:
    """The schema that is read from the text agrees with a library's reading of the same type."""
    saved = parse_saved_text(Path("find.py"), f'"""Does."""\nasync def main(a: {hint}): ...\n')
    schema: Any = saved.parameters["properties"]["a"]  # type: ignore[index,call-overload]
    adapter: TypeAdapter[Any] = TypeAdapter(eval(hint, dict(vars(typing))), config=ConfigDict(strict=True))  # noqa: S307
    try:
        adapter.validate_json(json.dumps(value))
        takes = True
    except ValidationError:
        takes = False
    assert jsonschema.Draft202012Validator(schema).is_valid(value) is takes


STATEMENTS = st.sampled_from(
    [
        "x = '''one\n  two\n'''",
        "if n:\n    x = x + '''\n      three'''",
        "def more(y):\n    return y + 'ü'",
        "x = more(x) if 'more' in dir() else x",
        "for each in names:\n    x += (each\n  + 'z')",
        "x = x + f'''{n}\n   {n}'''",
        "# a comment",
        "",
    ]
)
ENDS = st.sampled_from(
    ["x", "[x,\n n,\n    names]", "(x + 'ü'); 'ü' + x", "x if n else (\n  names)", "x += 'end'"]
)


@given(st.lists(STATEMENTS, max_size=6), ENDS)
def test_saved_text_does_what_the_program_did(statements: list[str], end: str) -> None:
    """As ``main``, with the same inputs, it returns the value of the last expression."""
    inputs: dict[str, Any] = {"n": 2, "names": ["a", "b"]}
    code = "\n".join(["x = ''", *statements, end])
    text = build_saved_text(code, inputs, ["read"], 'Says "x".')
    assert parse_saved_text(Path("saved.py"), text).tools == ("read",)
    made: dict[str, Any] = {}
    exec(text, made)  # noqa: S102
    before: dict[str, Any] = dict(inputs)
    *body, last = end.split("; ")
    exec("\n".join(["x = ''", *statements, *body, "" if "+=" in last else f"_ = {last}"]), before)  # noqa: S102
    assert asyncio.run(made["main"](**inputs)) == before.get("_")
    assert "async def main(n: int, names: list[str]) -> Any:" in text


def test_text_that_means_something_else_in_a_function_is_not_saved() -> None:
    """The error says what."""
    with pytest.raises(UnfitProgram, match="global"):
        build_saved_text("def f():\n    global x\n    x = 1\nf()", {}, (), "Does.")
