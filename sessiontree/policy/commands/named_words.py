"""Every word that a command may use, and whether it may use others: one too many is better than one missed.

A person's approval of a command is bound to the files that its words name. What is literally in the text is
read: words, quotes, escapes, braces, patterns, variables that plain assignments of the text set, and texts
within the text. Everything else makes the words *open*: any file of the workspace may be meant. So the rules
here list what is read, and a form that nobody thought of is open.

All work is bounded: a text, its words and their forms each have a maximum, and beyond it the words are open.

Source: bash(1), "QUOTING", "EXPANSION", "PARAMETERS".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple

from sessiontree.policy.commands import shell_names as names
from sessiontree.policy.commands.command_line import is_harmless_variable
from sessiontree.policy.commands.shell_lexer import (
    Gap,
    Part,
    ShellCall,
    ShellLexer,
    ShellWord,
    Variable,
    skip_to_program,
)
from sessiontree.policy.commands.word_forms import MAX_FORMS, expand_braces

MAX_TEXT_CHARS: Final = 65_536
"""A longer command is open."""
MAX_TEXTS: Final = 400
"""Maximum number of nested texts that are read."""
_MAX_READ: Final = 200_000
"""Maximum number of their characters that are read, in addition to four times those of the command."""
MAX_WORDS: Final = 4_000
"""Maximum number of distinct words; a command with more is open."""
_MAX_VALUES: Final = 16_000
"""Maximum number of forms that all words have together."""
_MAX_FORM_CHARS: Final = 2_000_000
"""Maximum number of characters in them."""
MAX_NAME_CHARS: Final = 4_096
"""A longer word names no file."""
_KEPT: Final = 16
"""Number of commands whose words are kept: a question reads the same command several times."""

_BETWEEN: Final = re.compile(r"[\s'\"|;&<>()`$=\\{},:@]+")
"""Characters that may separate names, whatever they mean there."""
_MEANING: Final = re.compile(r"[\s'\"\\$`;|&<>()]")
"""Characters that make a word a text of its own, if a shell runs it."""
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?(\+?)=(.*)", re.DOTALL)
_PLACES: Final = {"PWD": ".", "OLDPWD": ".", "HOME": "~"}
"""Variables that hold a directory, with a word for it: where a command was, or outside the workspace."""
_NUMBERS: Final = ("", "[0-9]*")
_AWKS: Final = frozenset({"awk", "gawk", "mawk", "nawk"})
_RUNS_IN_AWK: Final = re.compile(r"system|[|@]")
_SED_SCRIPT: Final = re.compile(
    r"(?:[0-9]{1,9}|\$)?(?:,(?:[0-9]{1,9}|\$))?!?[dpqQ=]|s(.)[A-Za-z0-9 $_.^-]*\1[A-Za-z0-9 $_.-]*\1[gpI0-9]*"
)
_GREPS: Final = frozenset({"grep", "egrep", "fgrep"})
_ENV_OPTIONS: Final = re.compile(r"-i?|-0|-v|--ignore-environment|--|-[uC].+|--(?:chdir|unset)=.*", re.DOTALL)


class NamedWords(NamedTuple):
    """The words that a command may name."""

    words: frozenset[str]
    """Names and patterns of files, not yet resolved to a directory."""
    why_open: str
    """Why it may name any other file, too; empty = it can't."""

    @property
    def is_open(self) -> bool:
        """Whether it may name files that the words do not hold."""
        return bool(self.why_open)


def collect_words(text: str, variables: Mapping[str, str]) -> NamedWords:
    """Return every word of a command line that may name a file. It never raises.

    Args:
        text: The command line, for any shell; it may be invalid.
        variables: Environment variables in addition to a command's own.
    """
    return _collect_words(text, tuple(sorted(variables.items())))


@lru_cache(maxsize=_KEPT)
def _collect_words(text: str, variables: tuple[tuple[str, str], ...]) -> NamedWords:
    size = len(text) + sum(len(value) for _, value in variables)
    if size > MAX_TEXT_CHARS:
        return NamedWords(frozenset(), f"it is longer than {MAX_TEXT_CHARS} characters")
    found = _Collection(left=_MAX_READ + 4 * len(text))
    for name, value in variables:
        found.assign(name, (value,))
        found.words[ShellWord((value,))] = _STRICT
    found.read(text)
    forms = found.forms()
    words: set[str] = set()
    for form in (*forms, text):
        pieces = [form, *_BETWEEN.split(form)]
        if form[:1] == "-":
            pieces.append(form[2:])
        for piece in pieces:
            if piece and not piece.startswith("~") and len(piece) <= MAX_NAME_CHARS:
                words.add(piece)
            at = piece.find("/")
            while 0 <= at < MAX_NAME_CHARS and len(words) <= MAX_WORDS:
                rest = piece[at + 1 : at + 1 + MAX_NAME_CHARS]
                if rest and not rest.startswith("~"):
                    words.add(rest)
                at = piece.find("/", at + 1)
        if len(words) > MAX_WORDS:
            return NamedWords(frozenset(), f"it holds more than {MAX_WORDS} words")
    return NamedWords(frozenset(words), found.why_open)


class _Use(NamedTuple):
    """How the call that a word belongs to uses it."""

    runs: bool
    """Whether a part that is not in the text may become the name of a file that runs."""
    reads: bool
    """Whether the word may be run as a text."""
    sets: bool = True
    """Whether it may set a variable."""
    counts: bool = False
    """Whether a number that the shell keeps is known to be one."""


_STRICT: Final = _Use(True, True)
_UNREAD: Final = _Use(True, False)
_SETTING: Final = _Use(False, True)
_QUIET: Final = _Use(False, True, sets=False)
_SILENT: Final = _Use(False, False, sets=False)
_SPOKEN: Final = _Use(False, False, sets=False, counts=True)
_WRITTEN: Final = _Use(True, True, sets=False, counts=True)


class _Forms(NamedTuple):
    """The values of a word or a variable."""

    texts: tuple[str, ...]
    why_open: str


@dataclass(slots=True)
class _Collection:
    """The words of a text, and of all texts within it."""

    left: int
    """Number of characters that may still be read."""
    assigned: dict[str, dict[tuple[Part, ...], None]] = field(default_factory=dict)
    words: dict[ShellWord, _Use] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    deferred: list[ShellWord | str] = field(default_factory=list)
    """Words and documents that are only written, unless something may run what was written."""
    known: dict[str, _Forms] = field(default_factory=dict)
    """Values of variables, once they are looked up."""
    why_open: str = ""
    computes: bool = False
    """Whether variables may be set in a way that is not read."""
    captures: bool = False
    """Whether what is spoken goes into a file or a pipe."""
    functions: set[str] = field(default_factory=set)
    runs: bool = False
    """Whether a program runs that may run what was written."""
    runs_text: bool = False
    """Whether one of them may be a shell."""
    beginnings: list[ShellWord] = field(default_factory=list)
    """First words that shells are given, where those are not literally in the text."""
    is_torn: bool = False
    """Whether a nested text is not whole, as a shell reads it."""
    count: int = 0
    chars: int = 0

    def open(self, why: str) -> None:
        self.why_open = self.why_open or why

    def assign(self, name: str, value: tuple[Part, ...]) -> None:
        if name in self.known:
            self.open(f"{name} is set by a text within a word")
        self.assigned.setdefault(name, {})[value] = None

    def read(self, text: str) -> None:
        """Read a text, and the texts in it."""
        waiting = [text]
        while waiting:
            each = waiting.pop()
            if each in self.texts or not each.strip():
                continue
            # Each level repeats the text around it, so nested texts grow much faster than the command.
            self.left -= len(each)
            if self.left < 0 or len(self.texts) >= MAX_TEXTS or len(self.words) >= MAX_WORDS:
                self.open("it holds too many texts or words")
                return
            self.texts.add(each)
            lexer = ShellLexer(each, is_bash=len(self.texts) == 1)
            lexer.read()
            if lexer.why_open:
                self.open(lexer.why_open)
            if not lexer.is_whole:
                waiting += each.split("\n")[:MAX_TEXTS]  # a wrong quote then affects only its own line
                self.is_torn = True
            self.computes = self.computes or lexer.computes
            waiting += lexer.inner
            for name in lexer.sets:
                self.assign(name, (Gap.UNKNOWN,))
            for at, call in enumerate(lexer.calls):
                after = lexer.calls[at + 1].before if at + 1 < len(lexer.calls) else ""
                self._watch_output(call, after)
                waiting += self._take(call)

    def _take(self, call: ShellCall) -> list[str]:
        """Keep a call's words; return the texts in them."""
        use = self._use(call)
        for word in call.words:
            first = word.parts[0]
            match = _ASSIGNED.match(first) if isinstance(first, str) else None
            if match is not None and use.sets:
                self._set(match, word)
            if use == _SPOKEN:
                self.deferred.append(word)
            self._keep(word, use)
        for word in call.targets:
            self._keep(word, _STRICT)
        words = (*(call.words if use.reads else ()), *call.targets)
        texts = [word.text for word in words if word.text is not None and _MEANING.search(word.text)]
        for document in call.documents:
            if document.is_quoted and self._name(call) == "cat":
                self.deferred.append(document.text)
            else:
                texts.append(document.text)
        return texts

    def _watch_output(self, call: ShellCall, after: str) -> None:
        """Note whether what is spoken goes into a file or a pipe: by itself, in a group, in a function."""
        name = self._name(call)
        if after.startswith("()"):
            self.functions.add(name)
        goes = call.writes or "|" in after.replace("||", "")
        if goes and (name in {*names.SPEAKING, *self.functions, ""}):
            self.captures = True

    def _keep(self, word: ShellWord, use: _Use) -> None:
        before = self.words.get(word)
        if before is not None and before != use:
            use = _Use(
                before.runs or use.runs,
                before.reads or use.reads,
                sets=before.sets or use.sets,
                counts=before.counts and use.counts,
            )
        self.words[word] = use

    def _set(self, match: re.Match[str], word: ShellWord) -> None:
        name = match[1]
        if match[2]:
            self.open("it sets a part of a list")
        if not names.is_plain_to_set(name):
            value = match[4] if len(word.parts) == 1 else "$"
            if not is_harmless_variable(name, value):
                self.open(f"it sets {name}, which changes what words mean")
        self.assign(name, (Gap.UNKNOWN,) if match[3] else (match[4], *word.parts[1:]))

    @staticmethod
    def _find_program(call: ShellCall) -> list[ShellWord]:
        """Return a call's words from its program on, without what runs it in the same shell."""
        words = skip_to_program(call.words, names.KEYWORDS)
        while words and words[0].text in {*names.WRAPPERS, "-p", "--"}:
            if words[0].text == "command" and len(words) > 1 and words[1].text in {"-v", "-V"}:
                return [ShellWord(("type",)), *words[2:]]
            words = words[1:]
        return words

    def _name(self, call: ShellCall) -> str:
        words = self._find_program(call)
        return (words[0].text or "") if words else ""

    def _use(self, call: ShellCall) -> _Use:
        """Return how a call uses its words, and open what it makes open."""
        words = self._find_program(call)
        if not words:
            return self._use_of_assignments(call)
        word = words[0]
        name = word.text
        if name is None or not _is_plain_name(word, name):
            self._run("/")
            self.open("the name of a program in it is not literally there")
            return _STRICT
        if name in names.OPENING or name.startswith("-"):
            self.open(f"{name!r} may change what other words mean, or run what it reads")
            self._run(name)
            return _STRICT
        literal = [each.text for each in words[1:]]
        self._check_builtin(name, words, literal)
        base = name.rpartition("/")[2]
        if name in names.SPEAKING:
            return _SPOKEN
        if name in names.QUIET:
            return _QUIET
        if name in names.RUNS_NOTHING or name == "for":
            return _STRICT
        if name == "git" and literal[:1] == ["commit"]:
            self.runs = True
            return _SILENT
        if base in _GREPS or _is_plain_script(base, literal):
            return _UNREAD
        self._run(name)
        self._check_programs(call, words)
        return _STRICT

    def _run(self, name: str) -> None:
        self.runs = True
        self.runs_text = self.runs_text or "/" in name or name in names.OPENING

    @staticmethod
    def _use_of_assignments(call: ShellCall) -> _Use:
        """Return the use of words that only set variables: what they hold counts where it is used."""
        for word in call.words:
            first = word.parts[0]
            match = _ASSIGNED.match(first) if isinstance(first, str) else None
            if match is not None and (not match[1].islower() or names.is_shells_variable(match[1])):
                return _STRICT
        return _SETTING

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
                self.open("'set' sets what is not read")
        elif name in {"export", "readonly"}:
            firsts = [word.parts[0] for word in words[1:]]
            if any(not isinstance(first, str) or first[:1] in {"", "-"} for first in firsts):
                self.open(f"{name!r} is given more than names and values")
        elif name == "printf":
            if not literal or literal[0] is None or literal[0].startswith("-"):
                self.open("'printf' may set a variable")
        elif name == "wait":
            self.computes = self.computes or any(each is None or each.startswith("-") for each in literal)
        elif name == "[[" or "-v" in literal:
            self.computes = True

    def _set_by_loop(self, words: Sequence[ShellWord]) -> None:
        name = words[1].text if len(words) > 1 else None
        if name is None or not name.isidentifier() or not names.is_plain_to_set(name):
            self.open("a loop in it sets what is not read")
            return
        if len(words) < 3 or words[2].text != "in":
            self.assign(name, (Gap.UNKNOWN,))
        for word in words[3:]:
            self.assign(name, word.parts)

    def _check_programs(self, call: ShellCall, words: Sequence[ShellWord]) -> None:
        """Open what a program that runs programs makes open."""
        seen: set[tuple[int, bool]] = set()
        for at, word in enumerate(words):
            base = (word.text or "").rpartition("/")[2]
            if base in names.CHOOSERS:
                self.open(f"{base!r} chooses files by itself")
            elif base in names.OTHER_SHELLS:
                self.open(f"{base!r} reads its words by rules of its own")
            elif base in names.SHELLS:
                self.runs_text = True
                self._check_shell(call, base, words, at + 1)
            elif base == "env":
                self._check_env(words, at + 1, seen)

    def _check_shell(self, call: ShellCall, base: str, words: Sequence[ShellWord], at: int) -> None:
        if "|" in call.before.replace("||", ""):
            self.open(f"{base!r} runs what another program writes")
        while at < len(words):
            word = words[at]
            text = word.text
            at += 1
            if text is None:
                self.beginnings.append(word)
                return
            if not text.startswith(("-", "+")):
                if text.startswith(("/dev/", "/proc/")):
                    self.open(f"{base!r} runs what it reads from {text!r}")
                return
            if names.is_named_option(text) and at < len(words) and words[at].text in names.SHELL_OPTIONS:
                at += 1
            elif text not in {"-", "--"} and not names.is_plain_option(text):
                self.open(f"{base!r} is given {text!r}, which may change what words mean")
                return
        if not call.reads:
            self.open(f"{base!r} runs what it reads from its input")

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
                self.open("an option of 'env' is not literally there")
                return
            elif first in {"-u", "-C"}:
                is_value = True
            elif first.startswith("-"):
                if not _ENV_OPTIONS.fullmatch(first):
                    self.open(f"'env' is given {first!r}")
                    return
            elif not _ASSIGNED.match(first):
                return

    def forms(self) -> set[str]:
        """Return the possible values of the words after all substitutions."""
        found: set[str] = set()
        done: dict[ShellWord, _Use] = {}
        while self.count <= _MAX_VALUES and self.chars <= _MAX_FORM_CHARS:
            fresh = {word: use for word, use in self.words.items() if done.get(word) != use}
            if fresh:
                done |= fresh
                self._add_forms(fresh, found)
            elif self.deferred and self.runs:
                self._take_deferred()
            else:
                break
        else:
            self.open("its words have too many forms")
        for word in self.beginnings:
            if any(
                form.startswith(("-", "+", "/dev/", "/proc/")) for form in self._expand_word(word, _STRICT)
            ):
                self.open("a shell may be given an option that is not literally there")
        if self.is_torn and self.runs_text:
            self.open("a quote, parenthesis or document in it does not end")
        return found

    def _add_forms(self, words: Mapping[ShellWord, _Use], found: set[str]) -> None:
        for word, use in words.items():
            forms = self._expand_word(word, use)
            found.update(forms)
            if use.reads and len(word.parts) > 1:
                for form in forms:
                    if _MEANING.search(form):
                        self.read(form)
            if self.count > _MAX_VALUES or self.chars > _MAX_FORM_CHARS:
                return

    def _take_deferred(self) -> None:
        """Read what was only written: something may run it."""
        deferred, self.deferred = self.deferred, []
        for each in deferred:
            if isinstance(each, str):
                self.read(each)
            elif self.captures and self.runs_text:
                self.open("a shell in it may run what another part of it writes")
            elif self.captures:
                self._keep(each, _WRITTEN)
                if each.text is not None and _MEANING.search(each.text):
                    self.read(each.text)

    def _expand_word(self, word: ShellWord, use: _Use) -> list[str]:
        values = self._resolve(word.parts, use=use)
        if use.runs and values.why_open:
            self.open(values.why_open)
        if word.has_braces and (word.hides_braces or len(word.parts) > 1) and use.runs:
            self.open("braces in it hold more than plain words")
        forms: list[str] = []
        for form in values.texts:
            try:
                expanded = expand_braces(form)
            except ValueError:
                expanded = [form]
                if use.runs or word.has_braces:
                    self.open("braces in it are not read")
            forms += expanded
        self.count += len(forms)
        return forms

    def _resolve(self, parts: tuple[Part, ...], *, use: _Use) -> _Forms:
        """Return the values of a word; variables are looked up first, without recursion."""
        self._look_up([part.name for part in parts if isinstance(part, Variable)])
        return self._combine(parts, use=use)

    def _look_up(self, wanted: Sequence[str]) -> None:
        waiting = list(wanted)
        begun: set[str] = set()
        while waiting:
            name = waiting[-1]
            if name in self.known:
                waiting.pop()
                continue
            values = self.assigned.get(name, {})
            if len(values) > MAX_FORMS:
                self.known[name] = _Forms(("*",), f"{name} has too many values")
                continue
            needed = {part.name for value in values for part in value if isinstance(part, Variable)}
            missing = [each for each in needed if each not in self.known]
            if missing and name not in begun:
                begun.add(name)
                if begun.isdisjoint(missing):
                    waiting += missing
                    continue
            if missing:
                self.known[name] = _Forms(("*",), f"{name} is set from itself")
                continue
            self.known[name] = self._expand_value(name, values)

    def _expand_value(self, name: str, values: Mapping[tuple[Part, ...], None]) -> _Forms:
        texts, why = {"": None}, ""
        for value in values:
            found = self._combine(value, use=_STRICT)
            why = why or found.why_open
            texts |= dict.fromkeys(found.texts)
        if len(texts) > MAX_FORMS or sum(map(len, texts)) > MAX_TEXT_CHARS:
            return _Forms(("*",), f"{name} has too many values")
        if any("\\" in text for text in texts):
            why = why or f"the value of {name} holds a backslash"
        return _Forms(tuple(texts), why)

    def _combine(self, parts: tuple[Part, ...], *, use: _Use) -> _Forms:
        choices: list[tuple[str, ...]] = []
        why, total, size = "", 1, 0
        for at in range(len(parts)):
            found = self._expand_part(parts, at, use=use)
            why = why or found.why_open
            choices.append(found.texts)
            total *= len(found.texts)
            size += max(map(len, found.texts))
        self.count += total
        self.chars += total * size
        if total > MAX_FORMS or self.count > _MAX_VALUES or self.chars > _MAX_FORM_CHARS:
            return _Forms(("*",), "its words have too many forms")
        return _Forms(tuple("".join(chosen) for chosen in product(*choices)), why)

    def _expand_part(self, parts: tuple[Part, ...], at: int, *, use: _Use) -> _Forms:
        part = parts[at]
        if part is Gap.NUMBER and (use.counts or not use.runs):
            return _Forms(_NUMBERS, "")
        if isinstance(part, Gap):
            return _Forms(("",), part.value)
        if isinstance(part, str):
            return _Forms((part,), "")
        name = part.name
        before, after = parts[at - 1] if at else "", parts[at + 1] if at + 1 < len(parts) else ""
        is_apart = (
            isinstance(before, str) and isinstance(after, str)
            and (not before or before[-1] in " \t\n='\":")
            and (not after or after[0] in "/ \t\n'\":")
        )  # fmt: skip
        if name in _PLACES and is_apart:
            others = self.known[name].texts if name in self.assigned else ()
            return _Forms((_PLACES[name], *others), self.known[name].why_open if others else "")
        if name == "PATH" and isinstance(parts[0], str) and parts[0].startswith("PATH=") and is_apart:
            return _Forms(("",), "")
        if names.is_shells_variable(name):
            return _Forms(("",), f"{name} is set by the shell")
        if name not in self.assigned:
            return _Forms(("",), f"{name} is not set in its text")
        if self.computes:
            return _Forms(self.known[name].texts, f"{name} may be set by what the shell computes")
        return self.known[name]


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
