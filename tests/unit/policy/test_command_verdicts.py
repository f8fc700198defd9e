"""The judge of commands: every program counts, wrappers change nothing, nothing unknown is harmless."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.recorded.approvals import Precedent
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.policy.commands.command_line import Grammar, read_arguments
from sessiontree.policy.commands.verdict import (
    HARMLESS,
    LITERAL,
    PROGRAMS,
    Verdict,
    derive_precedent,
    parse_single_program,
)
from tests.unit.policy.command_strategies import CALLS, HARMLESS_CALLS, HOSTILE, INTERPRETERS, Judge, verdict
from tests.unit.policy.command_strategies import find as find_program

SEARCH = settings(max_examples=400, derandomize=True, database=None, phases=[Phase.generate])
JOINTS = st.sampled_from((" | ", " && ", "; ", " || ", "\n", " |& "))
LISTS = st.tuples(st.lists(CALLS, min_size=1, max_size=4), st.lists(JOINTS, min_size=3, max_size=3))
CLEAR = ("env ", "env -i ", "env LC_ALL=C ", "nice ", "nice -n 5 ", "nohup ", "setsid -w ", "stdbuf -o0 ")
WRAPPED = st.tuples(st.lists(st.sampled_from((*CLEAR, "timeout 5 ", "timeout -k 1 5 ")), max_size=20), CALLS)


def fails(check: Callable[[], None]) -> bool:
    """Return whether a property fails."""
    try:
        check()
    except AssertionError:
        return True
    return False


@given(text=HOSTILE)
def test_any_text_gets_a_verdict(text: str) -> None:
    """What can't be judged covers nothing and is not harmless; what can names each program it runs."""
    found = verdict(text)
    assert bool(found.shapes) is not bool(found.doubt)
    assert not found.is_harmless or (found.shapes and not found.doubt)
    assert len(found.shapes) <= len(found.programs) or not found.shapes


def every_member_counts(judge_: Judge, members: list[str], joints: list[str]) -> None:
    """Property: REL-L24, a list or pipe is as harmless as the least harmless call in it."""
    text = members[0] + "".join(joint + member for joint, member in zip(joints, members[1:], strict=False))
    whole, parts = judge_(text), [verdict(member) for member in members]
    assert whole.is_harmless is all(part.is_harmless for part in parts)
    assert bool(whole.shapes) is all(part.shapes for part in parts)
    if whole.shapes:
        assert set(whole.shapes) == {shape for part in parts for shape in part.shapes}


@pytest.mark.covers("REL-L24")
@given(case=LISTS)
def test_every_member_of_a_list_counts(case: tuple[list[str], list[str]]) -> None:
    """Pipes, lists and lines."""
    every_member_counts(verdict, *case)


def wrapping_changes_nothing(judge_: Judge, wrappers: list[str], call: str) -> None:
    """Property: REL-L20, REL-L21, a call is judged the same however deep it is wrapped."""
    plain = "=" not in call and not call.startswith("cd")
    wrapped = judge_("".join(wrappers) + call)
    if plain:
        assert wrapped == verdict(call) or wrapped.doubt
        assert bool(wrapped.shapes) is bool(verdict(call).shapes)
    else:
        assert not wrapped.is_harmless
        assert not wrapped.shapes


@pytest.mark.covers("REL-L20", "REL-L21")
@given(case=WRAPPED)
def test_wrapped_call_is_judged_by_what_it_runs(case: tuple[list[str], str]) -> None:
    """Up to twenty wrappers deep."""
    wrapping_changes_nothing(verdict, *case)


def _first_alone(text: str) -> Verdict:
    return verdict(text.partition("|")[0].partition(";")[0].partition("\n")[0])


def _wrapper_alone(text: str) -> Verdict:
    first = text.split(" ")[0]
    return (
        replace(verdict("true"), programs=(first,)) if first in {"env", "nice", "timeout"} else verdict(text)
    )


def _shallow(text: str) -> Verdict:
    return verdict("true") if text.count("nice ") + text.count("env ") > 4 else verdict(text)


@pytest.mark.covers("REL-L24")
@pytest.mark.parametrize("broken", [_first_alone, lambda text: verdict(text.replace("rm -r", "ls"))])
def test_member_property_notices_planted_bugs(broken: Judge) -> None:
    """It fails on a judge that stops at the first call, or takes one program for another."""
    assert find(LISTS, lambda case: fails(lambda: every_member_counts(broken, *case)), settings=SEARCH)


@pytest.mark.covers("REL-L21")
@pytest.mark.parametrize("broken", [_wrapper_alone, _shallow])
def test_wrapper_property_notices_planted_bugs(broken: Judge) -> None:
    """It fails on a judge that trusts the wrapper, and on one that gives up looking at some depth."""
    assert find(WRAPPED, lambda case: fails(lambda: wrapping_changes_nothing(broken, *case)), settings=SEARCH)


def knows_its_options(read: Callable[[Grammar, list[str]], object], name: str, word: str) -> None:
    """Property: REL-L25, an option that is not of the grammar in full is refused."""
    grammar = PROGRAMS[name].grammar
    known = word[2:] in grammar.long_flags | grammar.long_valued | grammar.long_either
    if word.startswith("--"):
        known = known or word == "--"
    else:
        first = word[1]
        known = first in grammar.flags + grammar.valued or (grammar.takes_number and first.isdigit())
    if known:
        return
    try:
        read(grammar, [word, "x", "x"])
    except ValueError:
        return
    raise AssertionError(f"{name} {word} passes")


LONG_NAMES = sorted({name for each in PROGRAMS.values() for name in each.grammar.long_flags})
CUT_NAMES = st.sampled_from(LONG_NAMES).flatmap(
    lambda name: st.integers(1, len(name)).map(lambda n: name[:n])
)
OPTIONS = st.tuples(
    st.sampled_from(sorted(PROGRAMS)),
    CUT_NAMES.map("--{}".format) | st.sampled_from(string.ascii_letters + "?@").map("-{}".format),
)


@pytest.mark.covers("REL-L25")
@given(case=OPTIONS)
def test_unknown_or_shortened_option_is_refused(case: tuple[str, str]) -> None:
    """Every program, every letter, every beginning of an option's name."""
    knows_its_options(read_arguments, *case)


def _abbreviating(grammar: Grammar, words: list[str]) -> object:
    longs = frozenset(name[:n] for name in grammar.long_flags for n in range(1, len(name) + 1))
    return read_arguments(replace(grammar, long_flags=longs), words)


def _generous(grammar: Grammar, words: list[str]) -> object:
    return read_arguments(grammar, [word for word in words if word != "-o"])


@pytest.mark.covers("REL-L25")
@pytest.mark.parametrize("broken", [_abbreviating, _generous])
def test_option_property_notices_planted_bugs(broken: Callable[[Grammar, list[str]], object]) -> None:
    """It fails where abbreviations are taken, and where one letter is passed over."""
    assert find(OPTIONS, lambda case: fails(lambda: knows_its_options(broken, *case)), settings=SEARCH)


@pytest.mark.covers("REL-L28")
def test_no_interpreter_is_known() -> None:
    """REL-L28: nothing with a language, an output or a program of its own counts as harmless or literal."""
    assert {*PROGRAMS, *LITERAL}.isdisjoint(INTERPRETERS)
    for name in INTERPRETERS:
        assert not verdict(f"{name} x").shapes, name
        assert not verdict(f"ls | {name}").is_harmless, name
    assert len(HARMLESS) >= 40


@given(call=HARMLESS_CALLS)
def test_text_of_a_shell_is_judged_as_the_shell_reads_it(call: str) -> None:
    """``sh -c`` within ``sh -c``; its letters joined; what follows the text is not part of it."""
    quoted = call.replace("'", "'\\''")
    for text in (f"sh -c '{quoted}'", f"bash -xec '{quoted}' name arg", f"env sh -ec '{quoted}' && {call}"):
        assert verdict(text).shapes == verdict(call).shapes
        assert verdict(text).is_harmless


@pytest.mark.covers("REL-L14")
@pytest.mark.parametrize(
    ("command", "shapes"),
    [
        ("ls -la x y", ("/usr/bin/ls -a -l …",)),
        ("ls -al z", ("/usr/bin/ls -a -l …",)),
        ("/usr/bin/ls -l", ("/usr/bin/ls -l …",)),
        ("sort -k2 -t: f", ("/usr/bin/sort -k -t …",)),
        ("sort --key=2 f", ("/usr/bin/sort --key …",)),
        ("head -5 f | wc -l", ("/usr/bin/head -0 …", "/usr/bin/wc -l …")),
        ("mkdir -p a/b", ("/usr/bin/mkdir -p …",)),
        ("rm -r 'a b'", ("/usr/bin/rm exactly . -r 'a b'",)),
        ("xargs grep -l x --", ("/usr/bin/grep -l …",)),
    ],
)
def test_shapes(command: str, shapes: tuple[str, ...]) -> None:
    """Options count, what they are applied to does not; where it does, all of it does."""
    assert verdict(command).shapes == shapes


@pytest.mark.parametrize(
    ("arguments", "doubt"),
    [
        ({"command": "ls", "workdir": "a", "timeout": 5.0, "env": {"LC_ALL": "C"}}, ""),
        ({"command": "ls", "env": {"PATH": "x"}}, "sets 'PATH'"),
        ({"command": "ls", "env": {"LANG": "../x/y"}}, "sets 'LANG'"),
        ({"command": "ls", "env": {"LC_ALL": 5}}, "sets 'LC_ALL'"),
        ({"command": "ls", "elevated": True}, "given elevated"),
        ({"command": "ls", "host": "node"}, "given host"),
        ({"command": ["ls"]}, "not those of a command"),
        ({"command": "ls", "workdir": 5}, "not those of a command"),
        ({}, "not those of a command"),
    ],
)
def test_every_argument_counts(arguments: dict[str, object], doubt: str) -> None:
    """What a call adds to its command is judged too; an argument nobody knows can't be."""
    found = derive_precedent(arguments, "command", find_program)  # type: ignore[arg-type]
    assert doubt in found.doubt
    assert found.is_harmless is (not doubt)


def test_place_belongs_to_what_is_taken_word_by_word() -> None:
    """Removing ``x`` in another directory removes something else; listing one is harmless anywhere."""

    def at(command: str, place: str) -> Precedent:
        return derive_precedent({"command": command, "workdir": place}, "command", find_program)

    assert at("rm x", "a").shapes != at("rm x", "b").shapes
    assert at("ls x", "a").shapes == at("ls x", "b").shapes


@pytest.mark.parametrize(
    "command", ["rm x", "mkdir x", "sh -c ls", "env ls", "ls | wc", "sort -o x y", "python x", "./ls", "LS"]
)
def test_program_without_a_shell_is_a_harmless_one(command: str) -> None:
    """No wrapper, no change, no path of one's own."""
    with pytest.raises(ValueError, match=r"\w"):
        parse_single_program(command, find_program)


@pytest.mark.parametrize("command", ["'time' ls", "LC_ALL=C time ls", "nice time ls", "nice command ls"])
def test_what_the_shell_does_not_know_itself_must_be_found(command: str) -> None:
    """REL-L31: quoted, or behind a variable or a wrapper, a word of the shell is a program like others."""

    def without_time(name: str) -> str | None:
        return None if name == "time" else find_program(name)

    assert "not a program of the system" in verdict(command, without_time).doubt


def test_program_without_a_shell_goes_by_its_path() -> None:
    """Its arguments are what was written."""
    assert parse_single_program("ls -l '*' *", find_program) == ("/usr/bin/ls", "-l", "*", "*")


CHANGING = (
    *("rm", "cp", "mv", "chmod", "ln", "rmdir", "mkdir", "touch", "chown", "chgrp", "dd", "tee", "truncate"),
    *("install", "shred", "unlink", "split", "tar", "patch", "sed", "awk", "python3", "sh", "git", "find"),
)


@pytest.mark.covers("S53", "S55", "REL-L28")
@pytest.mark.parametrize("program", CHANGING)
def test_what_changes_files_is_never_known_to_be_harmless(program: str) -> None:
    """Mode ``smart`` asks about it and ``safe-bin`` refuses it: alone, in a list, in a pipe, by a wrapper."""
    line = f"{program} a b"
    for text in (line, f"ls; {line}", f"ls | {line}", f"nice {line}", f"sh -c '{line}'", f"/usr/bin/{line}"):
        assert not verdict(text).is_harmless, text
        assert not derive_precedent({"command": text}, "command", find_program).is_harmless, text
        with pytest.raises(ValueError, match=r"."):
            parse_single_program(text, find_program)
    assert program not in HARMLESS
    assert PROGRAMS.get(program) is None or PROGRAMS[program].effect == "makes"


def test_request_says_why_its_command_is_open() -> None:
    """Whatever else is known about it; a harmless command runs nothing of the workspace."""
    for command, words in (
        ("sh run$((1+1)).sh", "computes"),
        ("sh $USER.sh", "USER"),
        ("find . -exec sh {} +", "find"),
        ("eval sh run.sh", "eval"),
    ):
        assert words in derive_precedent({"command": command}, "command", find_program).opens, command
        given: dict[str, JsonValue] = {"command": command, "env": {"X": "1"}}
        assert words in derive_precedent(given, "command", find_program).opens, command
    for command in ("sh run.sh", "ls *", "make && ./run.sh", "for f in a b; do python $f; done"):
        assert derive_precedent({"command": command}, "command", find_program).opens == "", command
