"""The judge: what a command line runs in the end, and whether that is known to be harmless.

Never raises, whatever the text: what can't be judged says why, and covers nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sessiontree.contracts.approvals import Precedent
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.policy.commands.arguments import read_arguments
from sessiontree.policy.commands.programs import LITERAL, PROGRAMS
from sessiontree.policy.commands.shell_text import Word, calls_of, words_of_one_call
from sessiontree.policy.commands.wrappers import SHELLS, is_harmless_variable, run_by

Find: TypeAlias = Callable[[str], "str | None"]
"""Takes a program as a command names it; returns the file that would run, links resolved, if only the
machine's owner can have put it there, else None."""

MAX_DEPTH: Final = 32
"""Programs that run programs, one within the other."""
_SHELLS_OWN: Final = frozenset({"command"})
"""Wrappers that a shell knows by itself where they begin a call, however quoted; ``time`` is none."""
_INDIFFERENT: Final = frozenset({"timeout"})
"""Arguments besides the command that change nothing about what it does."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known about a command line."""

    programs: tuple[str, ...]
    """Names of what it runs in the end, in the order they stand there, as far as that can be seen."""
    shapes: tuple[str, ...]
    """Each program by its path with the shape of its arguments, sorted; empty = it can't be judged."""
    is_harmless: bool
    """Whether all of them only read."""
    doubt: str
    """Why it can't be judged; empty = it can."""


def judge(command: str, find: Find, *, place: str = ".") -> Verdict:
    """Return what is known about a command line for the shell that commands are given to.

    That is ``/bin/bash``; where the finder has none, a shell of POSIX.

    Args:
        command: The text.
        find: Finds programs.
        place: Directory it starts in, as the call names it.
    """
    findings = _Findings(find, place)
    findings.read_text(command, 0, is_bash=_is_bash("bash", find("/bin/bash")))
    if findings.doubt:
        return Verdict(tuple(findings.programs), (), False, findings.doubt)
    return Verdict(tuple(findings.programs), tuple(sorted(findings.shapes)), findings.is_harmless, "")


def precedent_of(arguments: Mapping[str, JsonValue], member: str, find: Find) -> Precedent:
    """Return what an answer to a call reaches beyond it, for a tool that gives a command to a shell.

    Args:
        arguments: The call's final arguments; of those besides the command only ``workdir``, ``env`` and
            ``timeout`` can be judged.
        member: Name of the argument that holds the command.
        find: Finds programs.
    """
    command, place = arguments.get(member), arguments.get("workdir", ".")
    variables = arguments.get("env", {})
    others = arguments.keys() - {member, "workdir", "env", *_INDIFFERENT}
    if not isinstance(command, str) or not isinstance(place, str) or not isinstance(variables, Mapping):
        return Precedent(False, (), "its arguments are not those of a command")
    if others:
        return Precedent(False, (), f"it is given {', '.join(sorted(others))} too")
    for name, value in variables.items():
        if not isinstance(value, str) or not is_harmless_variable(name, value):
            return Precedent(False, (), f"it sets {name!r}")
    verdict = judge(command, find, place=place)
    return Precedent(verdict.is_harmless, verdict.shapes, verdict.doubt)


def single_program(command: str, find: Find) -> tuple[str, ...]:
    """Return path and arguments of the one harmless program that a text names, to be started without a shell.

    Raises:
        ValueError: it is anything else; says why.
    """
    words = words_of_one_call(command)
    path = _located(words[0], find)
    name = words[0].rpartition("/")[2]
    known = PROGRAMS.get(name)
    if known is None or known.effect != "reads":
        raise ValueError(f"{name!r} is no program that is known to be harmless")
    try:
        read_arguments(known.grammar, words[1:])
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from error
    return (path, *words[1:])


def _located(name: str, find: Find) -> str:
    path = find(name)
    if path is None:
        raise ValueError(f"{name!r} is no program of the system's")
    names = {path.rpartition("/")[2], name.rpartition("/")[2]}
    if len(names) > 1 and not names <= SHELLS:
        raise ValueError(f"{name!r} leads to {path!r}, a program of another name")
    return path


def _is_bash(name: str, path: str | None) -> bool:
    """Whether a shell of this name at this path reads as bash does: another's name may lead to it."""
    return name == "bash" and path is not None and path.rpartition("/")[2] == "bash"


@dataclass(slots=True)
class _Findings:
    """What was found so far in one command line."""

    find: Find
    place: str
    programs: list[str] = field(default_factory=list)
    shapes: set[str] = field(default_factory=set)
    is_harmless: bool = True
    doubt: str = ""

    def read_text(self, text: str, depth: int, *, is_bash: bool) -> None:
        try:
            calls = calls_of(text, is_bash=is_bash)
        except ValueError as error:
            self._doubt(str(error))
            return
        for words in calls:
            self.read_call(self._after_variables(words), depth, by_shell=True)

    def read_call(
        self, words: tuple[str, ...], depth: int, *, by_shell: bool = False, is_open: bool = False
    ) -> None:
        """Judge one call: by what it runs, where it is a wrapper."""
        if depth > MAX_DEPTH:
            self._doubt(f"programs run programs more than {MAX_DEPTH} deep")
            return
        if not words:
            return
        name = words[0].rpartition("/")[2]
        run = run_by(name, words[1:])
        if run is None:
            self.programs.append(name)
            self._read_program(name, words, is_open=is_open)
            return
        path = None if by_shell and words[0] in _SHELLS_OWN else self._locate(words[0])
        if run.doubt:
            self._doubt(run.doubt)
        if run.text is not None:
            self.read_text(run.text, depth + 1, is_bash=_is_bash(name, path))
        elif run.words:
            self.read_call(run.words, depth + 1, is_open=is_open or run.is_open)
        else:
            self.programs.append(name)

    def _after_variables(self, words: tuple[Word, ...]) -> tuple[str, ...]:
        """Return a call's words without the variables before it, which must be harmless ones."""
        for place, word in enumerate(words):
            name, equals, value = word.text.partition("=")
            if not (equals and name.rstrip("+").isidentifier()):
                return tuple(each.text for each in words[place:])
            if not (word.is_bare and is_harmless_variable(name, value)):
                self._doubt(f"it sets {name!r}")
        self._doubt("it sets variables alone")
        return ()

    def _read_program(self, name: str, words: tuple[str, ...], *, is_open: bool) -> None:
        path = self._locate(words[0])
        known = PROGRAMS.get(name)
        if known is None:
            self.is_harmless = False
            if name not in LITERAL or is_open:
                self._doubt(f"what {name!r} does is not known")
            self.shapes.add(f"{path} exactly {shlex.join((self.place, *words[1:]))}")
            return
        try:
            arguments = read_arguments(known.grammar, words[1:])
        except ValueError as error:
            self._doubt(f"{name!r}: {error}")
            return
        if is_open and (known.grammar.most is not None or not arguments.is_closed):
            self._doubt(f"what is added to {name!r} may be options: end them with '--'")
        self.is_harmless = self.is_harmless and known.effect == "reads"
        self.shapes.add(" ".join((str(path), *arguments.options, "…")))

    def _locate(self, name: str) -> str | None:
        try:
            return _located(name, self.find)
        except ValueError as error:
            self._doubt(str(error))
            return None

    def _doubt(self, why: str) -> None:
        self.doubt = self.doubt or why
