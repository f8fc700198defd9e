"""What a command line finally runs, and whether that is known to be harmless.

It never raises, whatever the text: a verdict on a command that can't be judged says why, and covers nothing.
The known programs only read, only create something new, or do exactly what their arguments say. None of them
runs other programs or has its own language.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Final, Literal, NamedTuple, TypeAlias

from sessiontree.contracts.recorded.approvals import Precedent
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.policy.commands.command_line import (
    SHELLS,
    Grammar,
    Word,
    is_harmless_variable,
    read_arguments,
    run_by,
    split_calls,
    split_one_call,
)
from sessiontree.policy.commands.named_words import collect_words

Effect: TypeAlias = Literal["reads", "makes"]


class Program(NamedTuple):
    """One known program."""

    effect: Effect
    """Whether it changes nothing, or only creates what does not exist yet."""
    grammar: Grammar


def _define_program(  # noqa: PLR0913 - one value for each part of a grammar
    flags: str = "",
    valued: str = "",
    long: str = "",
    *,
    effect: Effect = "reads",
    least: int = 0,
    most: int | None = None,
    takes_number: bool = False,
    begins: str = "",
) -> Program:
    """Return a program; among its long options, ``name=`` has a value and ``name[=]`` may have one."""
    names = long.split()
    grammar = Grammar(
        flags,
        valued,
        frozenset(name for name in names if not name.endswith(("=", "]"))),
        frozenset(name[:-1] for name in names if name.endswith("=")),
        frozenset(name[:-3] for name in names if name.endswith("[=]")),
        takes_number,
        least,
        most,
        begins,
    )
    return Program(effect, grammar)


_SUMS = _define_program("bctwz", "", "binary check tag text zero ignore-missing quiet status strict warn")
_OPPOSITE = _define_program("i", "t", "initial tabs=")

PROGRAMS: Final[Mapping[str, Program]] = {
    "basename": _define_program("az", "s", "multiple zero suffix=", least=1),
    "cat": _define_program(
        "AbeEnstTuv", "", "show-all number number-nonblank show-ends show-tabs squeeze-blank"
    ),
    "cksum": _define_program(),
    "cmp": _define_program(
        "bls", "in", "print-bytes verbose quiet silent bytes= ignore-initial=", least=1, most=4
    ),
    "comm": _define_program("123z", "", "check-order nocheck-order total output-delimiter=", least=2, most=2),
    "cut": _define_program("snz", "bcdf", "bytes= characters= delimiter= fields= complement only-delimited"),
    "date": _define_program(
        "uR", "d", "utc universal date= iso-8601[=] rfc-3339= rfc-email", most=1, begins="+"
    ),
    "df": _define_program(
        "ahHiklPT", "tx", "all human-readable si inodes local portability print-type total"
    ),
    "diff": _define_program(
        "abBdeinqrstuwyN",
        "UCW",
        "brief unified[=] context[=] ignore-case ignore-all-space ignore-blank-lines ignore-space-change "
        "side-by-side width= recursive new-file text minimal report-identical-files color[=]",
        least=2,
        most=2,
    ),
    "dirname": _define_program("z", "", "zero", least=1),
    "du": _define_program(
        "abchHklLmPsSx", "dt", "all apparent-size human-readable summarize total max-depth="
    ),
    "echo": _define_program("neE"),
    "expand": _OPPOSITE,
    "false": _define_program(),
    "fold": _define_program("bs", "w", "bytes spaces width="),
    "grep": _define_program(
        "abcEFGhHilLnoqsvwxyzZ",
        "ABCefm",
        "count extended-regexp fixed-strings basic-regexp no-filename with-filename ignore-case "
        "no-ignore-case files-with-matches files-without-match line-number only-matching quiet silent "
        "no-messages invert-match word-regexp line-regexp null-data null byte-offset text "
        "after-context= before-context= context= regexp= file= max-count= color[=] colour[=]",
        takes_number=True,
    ),
    "head": _define_program(
        "qvz", "cn", "bytes= lines= quiet silent verbose zero-terminated", takes_number=True
    ),
    "id": _define_program("aGgnruz", "", "group groups name real user zero"),
    "join": _define_program(
        "iz", "aej12otv", "ignore-case header check-order nocheck-order", least=2, most=2
    ),
    "ls": _define_program(
        "aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1",
        "ITw",
        "all almost-all author escape directory classify[=] full-time group-directories-first no-group "
        "human-readable si dereference inode numeric-uid-gid literal quote-name reverse recursive size "
        "color[=] format= sort= time= time-style= indicator-style= ignore= hide= block-size= width=",
    ),
    "md5sum": _SUMS,
    "mkdir": _define_program("pv", "m", "parents verbose mode=", effect="makes", least=1),
    "nl": _define_program("p", "bdfhilnsvw", "body-numbering= number-format= number-width= no-renumber"),
    "nproc": _define_program("", "", "all ignore=", most=0),
    "od": _define_program(
        "bcdfiloxsv", "AjNtS", "address-radix= skip-bytes= read-bytes= format= output-duplicates"
    ),
    "paste": _define_program("sz", "d", "serial delimiters= zero-terminated"),
    "pwd": _define_program("LP", "", "logical physical", most=0),
    "readlink": _define_program(
        "efmnqsvz", "", "canonicalize canonicalize-existing no-newline zero", least=1
    ),
    "realpath": _define_program(
        "eLmPqsz", "", "canonicalize-existing relative-to= relative-base= zero", least=1
    ),
    "rev": _define_program(),
    "seq": _define_program("w", "fs", "equal-width format= separator=", least=1, most=3),
    "sha1sum": _SUMS,
    "sha256sum": _SUMS,
    "sha512sum": _SUMS,
    "sleep": _define_program(least=1),
    "sort": _define_program(
        "bcCdfghiMmnrRsuVz",
        "kt",
        "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort human-numeric-sort "
        "month-sort numeric-sort reverse version-sort unique stable zero-terminated "
        "key= field-separator= check[=]",
    ),
    "stat": _define_program("fLt", "c", "dereference file-system terse format= printf=", least=1),
    "tac": _define_program("b", "s", "before separator="),
    "tail": _define_program(
        "qvz", "cn", "bytes= lines= quiet silent verbose zero-terminated", takes_number=True
    ),
    "touch": _define_program("acm", "", "no-create", effect="makes", least=1),
    "tr": _define_program("cCdst", "", "complement delete squeeze-repeats truncate-set1", least=1, most=2),
    "true": _define_program(),
    "uname": _define_program("amnoprsv", "", "all kernel-name nodename kernel-release machine", most=0),
    "unexpand": _define_program("a", "t", "all first-only tabs="),
    "uniq": _define_program(
        "cdDiuz",
        "fsw",
        "count repeated unique ignore-case skip-fields= skip-chars= check-chars= zero-terminated",
        most=1,  # the second operand would be written
    ),
    "wc": _define_program("clLmw", "", "bytes chars lines max-line-length words total="),
    "whoami": _define_program(most=0),
}
"""By name; their operands may be anything."""

LITERAL: Final = frozenset({"chmod", "cp", "ln", "mv", "rm", "rmdir"})
"""Programs that change only what their arguments name; calls are alike if their arguments are the same."""

HARMLESS: Final = tuple(sorted(name for name, program in PROGRAMS.items() if program.effect == "reads"))
"""Names of the programs that only read."""


Find: TypeAlias = Callable[[str], "str | None"]
"""Takes a program as a command names it. Returns the file that would run, links resolved, if only the
machine's owner can have put it there, else None."""

MAX_DEPTH: Final = 32
"""Maximum nesting of programs that run programs."""
_SHELLS_OWN: Final = frozenset({"command"})
"""Wrappers that a shell handles itself at the beginning of a call, however quoted; ``time`` is not one."""
_INDIFFERENT: Final = frozenset({"timeout"})
"""Arguments, other than the command, that do not change what it does."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known about a command line."""

    programs: tuple[str, ...]
    """Names of the programs it finally runs, in their order in the text, as far as they can be determined."""
    shapes: tuple[str, ...]
    """Each program by its path with the shape of its arguments, sorted; empty = it can't be judged."""
    is_harmless: bool
    """Whether all of them only read."""
    doubt: str
    """Why it can't be judged; empty = it can."""


def judge(command: str, find: Find, *, place: str = ".") -> Verdict:
    """Return what is known about a command line, for the shell that runs commands.

    That is ``/bin/bash``, or a POSIX shell if the finder has no bash.

    Args:
        command: The text.
        find: Finds programs.
        place: Directory in which it starts, as the call names it.
    """
    findings = _Findings(find, place)
    findings.read_text(command, 0, is_bash=_is_bash("bash", find("/bin/bash")))
    if findings.doubt:
        return Verdict(tuple(findings.programs), (), False, findings.doubt)
    return Verdict(tuple(findings.programs), tuple(sorted(findings.shapes)), findings.is_harmless, "")


def derive_precedent(arguments: Mapping[str, JsonValue], member: str, find: Find) -> Precedent:
    """Return what an answer to a call covers besides that call, for a tool that passes a command to a shell.

    Args:
        arguments: The call's final arguments; besides the command, only ``workdir``, ``env`` and ``timeout``
            can be judged.
        member: Name of the argument that holds the command.
        find: Finds programs.
    """
    command, place = arguments.get(member), arguments.get("workdir", ".")
    variables = arguments.get("env", {})
    others = arguments.keys() - {member, "workdir", "env", *_INDIFFERENT}
    if not isinstance(command, str) or not isinstance(place, str) or not isinstance(variables, Mapping):
        return Precedent(False, (), "its arguments are not those of a command")
    texts = {name: value for name, value in variables.items() if isinstance(value, str)}
    doubt = _find_doubt(others, variables)
    verdict = None if doubt else judge(command, find, place=place)
    if verdict is not None and verdict.is_harmless:
        return Precedent(True, verdict.shapes, verdict.doubt)
    opens = collect_words(command, texts).why_open
    if verdict is None:
        return Precedent(False, (), doubt, opens)
    return Precedent(False, verdict.shapes, verdict.doubt, opens)


def _find_doubt(others: Collection[str], variables: Mapping[str, JsonValue]) -> str:
    """Return why a command can't be judged by its text, because of its other arguments."""
    if others:
        return f"it is given {', '.join(sorted(others))} too"
    for name, value in variables.items():
        if not isinstance(value, str) or not is_harmless_variable(name, value):
            return f"it sets {name!r}"
    return ""


def parse_single_program(command: str, find: Find) -> tuple[str, ...]:
    """Return path and arguments of the harmless program that a text names, to be started without a shell.

    Raises:
        ValueError: it is anything else; says why.
    """
    words = split_one_call(command)
    path = _find_path(words[0], find)
    name = words[0].rpartition("/")[2]
    known = PROGRAMS.get(name)
    if known is None or known.effect != "reads":
        raise ValueError(f"{name!r} is not a program that is known to be harmless")
    try:
        read_arguments(known.grammar, words[1:])
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from error
    return (path, *words[1:])


def _find_path(name: str, find: Find) -> str:
    path = find(name)
    if path is None:
        raise ValueError(f"{name!r} is not a program of the system")
    names = {path.rpartition("/")[2], name.rpartition("/")[2]}
    # What it does may depend on the name by which it is called; only of shells is that known.
    if len(names) > 1 and not names <= SHELLS:
        raise ValueError(f"{name!r} is a link to {path!r}, a program with another name")
    return path


def _is_bash(name: str, path: str | None) -> bool:
    """Whether a shell with this name and path reads as bash does: another shell's name may lead to bash."""
    return name == "bash" and path is not None and path.rpartition("/")[2] == "bash"


@dataclass(slots=True)
class _Findings:
    """What has been found in one command line so far."""

    find: Find
    place: str
    programs: list[str] = field(default_factory=list)
    shapes: set[str] = field(default_factory=set)
    is_harmless: bool = True
    doubt: str = ""

    def read_text(self, text: str, depth: int, *, is_bash: bool) -> None:
        try:
            calls = split_calls(text, is_bash=is_bash)
        except ValueError as error:
            self._note_doubt(str(error))
            return
        for words in calls:
            self.read_call(self._skip_variables(words), depth, by_shell=True)

    def read_call(
        self, words: tuple[str, ...], depth: int, *, by_shell: bool = False, is_open: bool = False
    ) -> None:
        """Judge one call; a wrapper is judged by what it runs."""
        if depth > MAX_DEPTH:
            self._note_doubt(f"programs run programs more than {MAX_DEPTH} deep")
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
            self._note_doubt(run.doubt)
        if run.text is not None:
            self.read_text(run.text, depth + 1, is_bash=_is_bash(name, path))
        elif run.words:
            self.read_call(run.words, depth + 1, is_open=is_open or run.is_open)
        else:
            self.programs.append(name)

    def _skip_variables(self, words: tuple[Word, ...]) -> tuple[str, ...]:
        """Return a call's words without the leading variables, which must be harmless."""
        for place, word in enumerate(words):
            name, equals, value = word.text.partition("=")
            if not (equals and name.rstrip("+").isidentifier()):
                return tuple(each.text for each in words[place:])
            if not (word.is_bare and is_harmless_variable(name, value)):
                self._note_doubt(f"it sets {name!r}")
        self._note_doubt("it sets variables alone")
        return ()

    def _read_program(self, name: str, words: tuple[str, ...], *, is_open: bool) -> None:
        path = self._locate(words[0])
        known = PROGRAMS.get(name)
        if known is None:
            self.is_harmless = False
            # With words that are added, the same arguments are no longer the same call.
            if name not in LITERAL or is_open:
                self._note_doubt(f"what {name!r} does is not known")
            self.shapes.add(f"{path} exactly {shlex.join((self.place, *words[1:]))}")
            return
        try:
            arguments = read_arguments(known.grammar, words[1:])
        except ValueError as error:
            self._note_doubt(f"{name!r}: {error}")
            return
        # What is added could be one operand too many, such as the file that `uniq` writes.
        if is_open and (known.grammar.most is not None or not arguments.is_closed):
            self._note_doubt(f"what is added to {name!r} may be options: end them with '--'")
        self.is_harmless = self.is_harmless and known.effect == "reads"
        self.shapes.add(" ".join((str(path), *arguments.options, "…")))

    def _locate(self, name: str) -> str | None:
        try:
            return _find_path(name, self.find)
        except ValueError as error:
            self._note_doubt(str(error))
            return None

    def _note_doubt(self, why: str) -> None:
        self.doubt = self.doubt or why
