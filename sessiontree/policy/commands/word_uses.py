"""How the calls of a command use their words, and which of them make the words open.

``named_words.py`` says what open words are. A program that is not known here may do anything with its words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Final, NamedTuple

from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.policy.commands import shell_names as names
from sessiontree.policy.commands.shell_lexer import Gap, Part, ShellCall, ShellWord, skip_to_program
from sessiontree.policy.commands.word_forms import expand_braces

ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?(\+?)=(.*)", re.DOTALL)
_AWKS: Final = frozenset({"awk", "gawk", "mawk", "nawk"})
_RUNS_IN_AWK: Final = re.compile(r"system|[|@]")
_SED_SCRIPT: Final = re.compile(
    r"(?:[0-9]{1,9}|\$)?(?:,(?:[0-9]{1,9}|\$))?!?[dpqQ=]|s(.)[A-Za-z0-9 $_.^-]*\1[A-Za-z0-9 $_.-]*\1[gpI0-9]*"
)
_GREPS: Final = frozenset({"grep", "egrep", "fgrep"})
_ENV_OPTIONS: Final = re.compile(r"-i?|-0|-v|--ignore-environment|--|-[uC].+|--(?:chdir|unset)=.*", re.DOTALL)


class WordUse(NamedTuple):
    """How the call that a word belongs to uses it."""

    runs: bool
    """Whether a part that is not in the text may become the name of a file that runs."""
    reads: bool
    """Whether the word may be run as a text."""
    sets: bool = True
    """Whether it may set a variable."""
    counts: bool = False
    """Whether a number that the shell keeps is known to be one."""


STRICT: Final = WordUse(True, True)
UNREAD: Final = WordUse(True, False)
SETTING: Final = WordUse(False, True)
QUIET: Final = WordUse(False, True, sets=False)
SILENT: Final = WordUse(False, False, sets=False)
SPOKEN: Final = WordUse(False, False, sets=False, counts=True)
WRITTEN: Final = WordUse(True, True, sets=False, counts=True)


class WordForms(NamedTuple):
    """The values of a word or a variable."""

    texts: tuple[str, ...]
    why_open: str


@dataclass(slots=True)
class KeptWords:
    """The words of a text and of all texts within it, and what is known of what the text does."""

    assigned: dict[str, dict[tuple[Part, ...], None]] = field(default_factory=dict)
    words: dict[ShellWord, WordUse] = field(default_factory=dict)
    deferred: list[ShellWord | str] = field(default_factory=list)
    """Words and documents that are only written, unless something may run what was written."""
    known: dict[str, WordForms] = field(default_factory=dict)
    """Values of variables, once they are looked up."""
    why_open: str = ""
    computes: bool = False
    """Whether variables may be set in a way that is not read."""
    captures: bool = False
    """Whether what is spoken goes into a file or a pipe."""
    runs: bool = False
    """Whether a program runs that may run what was written."""
    runs_text: bool = False
    """Whether one of them may be a shell."""
    beginnings: list[ShellWord] = field(default_factory=list)
    """First words that shells are given, where those are not literally in the text."""
    is_torn: bool = False
    """Whether a nested text is not whole, as a shell reads it."""

    def open(self, why: str) -> None:
        """Open the words; the first reason counts."""
        self.why_open = self.why_open or why

    def assign(self, name: str, value: tuple[Part, ...]) -> None:
        """Add a value that a variable may have."""
        if name in self.known:
            self.open(f"{name} is set by a text within a word")
        self.assigned.setdefault(name, {})[value] = None

    def keep(self, word: ShellWord, use: WordUse) -> None:
        """Keep a word; one that is used in two ways is used in both."""
        before = self.words.get(word)
        if before is not None and before != use:
            use = WordUse(
                before.runs or use.runs,
                before.reads or use.reads,
                sets=before.sets or use.sets,
                counts=before.counts and use.counts,
            )
        self.words[word] = use


class CallUses:
    """Finds how calls use their words, and opens what a call makes open."""

    def __init__(self, kept: KeptWords) -> None:
        self._kept = kept

    @staticmethod
    def _find_program(call: ShellCall) -> list[ShellWord]:
        """Return a call's words from its program on, without what runs it in the same shell."""
        words = skip_to_program(call.words, names.KEYWORDS)
        while words and words[0].text in {*names.WRAPPERS, "-p", "--"}:
            if words[0].text == "command" and len(words) > 1 and words[1].text in {"-v", "-V"}:
                return [ShellWord(("type",)), *words[2:]]
            words = words[1:]
        return words

    def find_name(self, call: ShellCall) -> str:
        """Return the name of a call's program; empty if it is not literally there."""
        words = self._find_program(call)
        return (words[0].text or "") if words else ""

    def find_use(self, call: ShellCall) -> WordUse:
        """Return how a call uses its words, and open what it makes open."""
        words = self._find_program(call)
        if not words:
            return self._use_of_assignments(call)
        word = words[0]
        name = word.text
        if name is None or not _is_plain_name(word, name):
            self._run("/")
            self._kept.open("the name of a program in it is not literally there")
            return STRICT
        if name in names.OPENING or name.startswith("-"):
            self._kept.open(f"{name!r} may change what other words mean, or run what it reads")
            self._run(name)
            return STRICT
        literal = [each.text for each in words[1:]]
        self._check_builtin(name, words, literal)
        base = name.rpartition("/")[2]
        if name in names.SPEAKING:
            return SPOKEN
        if name in names.QUIET:
            return QUIET
        if name in names.RUNS_NOTHING or name == "for":
            return STRICT
        if name == "git" and literal[:1] == ["commit"]:
            self._kept.runs = True
            return SILENT
        if base in _GREPS or _is_plain_script(base, literal):
            return UNREAD
        self._run(name)
        self._check_programs(call, words)
        return STRICT

    def _run(self, name: str) -> None:
        self._kept.runs = True
        self._kept.runs_text = self._kept.runs_text or "/" in name or name in names.OPENING

    @staticmethod
    def _use_of_assignments(call: ShellCall) -> WordUse:
        """Return the use of words that only set variables: what they hold counts where it is used."""
        for word in call.words:
            first = word.parts[0]
            match = ASSIGNED.match(first) if isinstance(first, str) else None
            if match is not None and (not match[1].islower() or names.is_shells_variable(match[1])):
                return STRICT
        return SETTING

    def _check_builtin(self, name: str, words: Sequence[ShellWord], literal: Sequence[str | None]) -> None:
        """Open what a builtin's arguments make open."""
        if name == "for":
            self._set_by_loop(words)
        elif name == "set":
            is_plain = all(
                each is not None
                and (
                    names.is_plain_option(each) or names.is_named_option(each) or each in names.SHELL_OPTIONS
                )
                for each in literal
            )
            if not is_plain:
                self._kept.open("'set' sets what is not read")
        elif name in {"export", "readonly"}:
            firsts = [word.parts[0] for word in words[1:]]
            if any(not isinstance(first, str) or first[:1] in {"", "-"} for first in firsts):
                self._kept.open(f"{name!r} is given more than names and values")
        elif name == "printf":
            if not literal or literal[0] is None or literal[0].startswith("-"):
                self._kept.open("'printf' may set a variable")
        elif name == "wait":
            self._kept.computes = self._kept.computes or any(
                each is None or each.startswith("-") for each in literal
            )
        elif name == "[[" or "-v" in literal:
            self._kept.computes = True

    def _set_by_loop(self, words: Sequence[ShellWord]) -> None:
        name = words[1].text if len(words) > 1 else None
        if name is None or not name.isidentifier() or not names.is_plain_to_set(name):
            self._kept.open("a loop in it sets what is not read")
            return
        if len(words) < 3 or words[2].text != "in":
            self._kept.assign(name, (Gap.UNKNOWN,))
        for word in words[3:]:
            self._kept.assign(name, word.parts)

    def _check_programs(self, call: ShellCall, words: Sequence[ShellWord]) -> None:
        """Open what a program that runs programs makes open."""
        seen: set[tuple[int, bool]] = set()
        for at, word in enumerate(words):
            base = (word.text or "").rpartition("/")[2]
            if base in names.CHOOSERS:
                self._kept.open(f"{base!r} chooses files by itself")
            elif base in names.OTHER_SHELLS:
                self._kept.open(f"{base!r} reads its words by rules of its own")
            elif base in names.SHELLS:
                self._kept.runs_text = True
                self._check_shell(call, base, words, at + 1)
            elif base == "env":
                self._check_env(words, at + 1, seen)

    def _check_shell(self, call: ShellCall, base: str, words: Sequence[ShellWord], at: int) -> None:
        if "|" in call.before.replace("||", ""):
            self._kept.open(f"{base!r} runs what another program writes")
        while at < len(words):
            word = words[at]
            text = word.text
            at += 1
            if text is None:
                self._kept.beginnings.append(word)
                return
            if not text.startswith(("-", "+")):
                if text.startswith(("/dev/", "/proc/")):
                    self._kept.open(f"{base!r} runs what it reads from {text!r}")
                return
            if names.is_named_option(text) and at < len(words) and words[at].text in names.SHELL_OPTIONS:
                at += 1
            elif text not in {"-", "--"} and not names.is_plain_option(text):
                self._kept.open(f"{base!r} is given {text!r}, which may change what words mean")
                return
        if not call.reads:
            self._kept.open(f"{base!r} runs what it reads from its input")

    def _check_env(self, words: Sequence[ShellWord], begin: int, seen: set[tuple[int, bool]]) -> None:
        """Open what the ``env`` before these words makes open; ``seen`` is what was read for others."""
        is_value = False
        for at in range(begin, len(words)):
            if (at, is_value) in seen:
                return
            seen.add((at, is_value))
            word = words[at]
            first = word.parts[0]
            if is_value:
                is_value = False
            elif not isinstance(first, str) or (first.startswith("-") and word.text is None):
                self._kept.open("an option of 'env' is not literally there")
                return
            elif first in {"-u", "-C"}:
                is_value = True
            elif first.startswith("-"):
                if not _ENV_OPTIONS.fullmatch(first):
                    self._kept.open(f"'env' is given {first!r}")
                    return
            elif not ASSIGNED.match(first):
                return


def _is_plain_name(word: ShellWord, name: str) -> bool:
    """Whether a program's name stands for itself alone."""
    if word.has_braces:
        try:
            return expand_braces(name)[1:] in ([], [name]) and not word.hides_braces
        except ValueError:
            return False
    return name in names.QUIET or not any(sign in name for sign in "*?[~")


def _is_plain_script(base: str, literal: Sequence[str | None]) -> bool:
    """Whether awk or sed is given a program that runs nothing."""
    if base in _AWKS:
        return all(each is not None and not _RUNS_IN_AWK.search(each) for each in literal)
    if base == "sed" and None not in literal:
        rest = [each for each in literal if each not in {"-n", "-E", "-r", "-i"}]
        return (
            bool(rest)
            and _SED_SCRIPT.fullmatch(rest[0] or "") is not None
            and not any((each or "").startswith("-") for each in rest)
        )
    return False
