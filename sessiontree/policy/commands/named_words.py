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
from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple

from sessiontree.policy.commands import shell_names as names
from sessiontree.policy.commands.command_line import is_harmless_variable
from sessiontree.policy.commands.shell_lexer import Gap, Part, ShellCall, ShellLexer, ShellWord, Variable
from sessiontree.policy.commands.word_forms import MAX_FORMS, expand_braces
from sessiontree.policy.commands.word_uses import (
    ASSIGNED,
    SPOKEN,
    STRICT,
    WRITTEN,
    CallUses,
    KeptWords,
    WordForms,
    WordUse,
)

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
_PLACES: Final = {"PWD": ".", "OLDPWD": ".", "HOME": "~"}
"""Variables that hold a directory, with a word for it: where a command was, or outside the workspace."""
_NUMBERS: Final = ("", "[0-9]*")


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
    kept = KeptWords()
    for name, value in variables:
        kept.assign(name, (value,))
        kept.words[ShellWord((value,))] = STRICT
    reader = _WordReader(kept, left=_MAX_READ + 4 * len(text))
    reader.read(text)
    forms = _FormList(kept, reader).expand()
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
    return NamedWords(frozenset(words), kept.why_open)


class _WordReader:
    """Reads a text and the texts in it, and keeps their words.

    Args:
        kept: Receives the words.
        left: Number of characters that may be read.
    """

    def __init__(self, kept: KeptWords, left: int) -> None:
        self._kept = kept
        self._uses = CallUses(kept)
        self._left = left
        self._texts: set[str] = set()
        self._functions: set[str] = set()

    def read(self, text: str) -> None:
        """Read a text, and the texts in it."""
        waiting = [text]
        while waiting:
            each = waiting.pop()
            if each in self._texts or not each.strip():
                continue
            # Each level repeats the text around it, so nested texts grow much faster than the command.
            self._left -= len(each)
            if self._left < 0 or len(self._texts) >= MAX_TEXTS or len(self._kept.words) >= MAX_WORDS:
                self._kept.open("it holds too many texts or words")
                return
            self._texts.add(each)
            lexer = ShellLexer(each, is_bash=len(self._texts) == 1)
            lexer.read()
            if lexer.why_open:
                self._kept.open(lexer.why_open)
            if not lexer.is_whole:
                waiting += each.split("\n")[:MAX_TEXTS]  # a wrong quote then affects only its own line
                self._kept.is_torn = True
            self._kept.computes = self._kept.computes or lexer.computes
            waiting += lexer.inner
            for name in lexer.sets:
                self._kept.assign(name, (Gap.UNKNOWN,))
            for at, call in enumerate(lexer.calls):
                after = lexer.calls[at + 1].before if at + 1 < len(lexer.calls) else ""
                self._watch_output(call, after)
                waiting += self._take(call)

    def _take(self, call: ShellCall) -> list[str]:
        """Keep a call's words; return the texts in them."""
        use = self._uses.find_use(call)
        for word in call.words:
            first = word.parts[0]
            match = ASSIGNED.match(first) if isinstance(first, str) else None
            if match is not None and use.sets:
                self._set(match, word)
            if use == SPOKEN:
                self._kept.deferred.append(word)
            self._kept.keep(word, use)
        for word in call.targets:
            self._kept.keep(word, STRICT)
        words = (*(call.words if use.reads else ()), *call.targets)
        texts = [word.text for word in words if word.text is not None and _MEANING.search(word.text)]
        for document in call.documents:
            if document.is_quoted and self._uses.find_name(call) == "cat":
                self._kept.deferred.append(document.text)
            else:
                texts.append(document.text)
        return texts

    def _watch_output(self, call: ShellCall, after: str) -> None:
        """Note whether what is spoken goes into a file or a pipe: by itself, in a group, in a function."""
        name = self._uses.find_name(call)
        if after.startswith("()"):
            self._functions.add(name)
        goes = call.writes or "|" in after.replace("||", "")
        if goes and (name in {*names.SPEAKING, *self._functions, ""}):
            self._kept.captures = True

    def _set(self, match: re.Match[str], word: ShellWord) -> None:
        name = match[1]
        if match[2]:
            self._kept.open("it sets a part of a list")
        if not names.is_plain_to_set(name):
            value = match[4] if len(word.parts) == 1 else "$"
            if not is_harmless_variable(name, value):
                self._kept.open(f"it sets {name}, which changes what words mean")
        self._kept.assign(name, (Gap.UNKNOWN,) if match[3] else (match[4], *word.parts[1:]))


class _FormList:
    """Finds what the words may be after all substitutions.

    Args:
        kept: The words.
        reader: Reads the texts that only a substitution makes.
    """

    def __init__(self, kept: KeptWords, reader: _WordReader) -> None:
        self._kept = kept
        self._reader = reader
        self._count = 0
        """How many forms there are so far."""
        self._chars = 0
        """How many characters they have."""

    def expand(self) -> set[str]:
        """Return the possible values of the words after all substitutions."""
        found: set[str] = set()
        done: dict[ShellWord, WordUse] = {}
        while self._count <= _MAX_VALUES and self._chars <= _MAX_FORM_CHARS:
            fresh = {word: use for word, use in self._kept.words.items() if done.get(word) != use}
            if fresh:
                done |= fresh
                self._add_forms(fresh, found)
            elif self._kept.deferred and self._kept.runs:
                self._take_deferred()
            else:
                break
        else:
            self._kept.open("its words have too many forms")
        for word in self._kept.beginnings:
            if any(
                form.startswith(("-", "+", "/dev/", "/proc/")) for form in self._expand_word(word, STRICT)
            ):
                self._kept.open("a shell may be given an option that is not literally there")
        if self._kept.is_torn and self._kept.runs_text:
            self._kept.open("a quote, parenthesis or document in it does not end")
        return found

    def _add_forms(self, words: Mapping[ShellWord, WordUse], found: set[str]) -> None:
        for word, use in words.items():
            forms = self._expand_word(word, use)
            found.update(forms)
            if use.reads and len(word.parts) > 1:
                for form in forms:
                    if _MEANING.search(form):
                        self._reader.read(form)
            if self._count > _MAX_VALUES or self._chars > _MAX_FORM_CHARS:
                return

    def _take_deferred(self) -> None:
        """Read what was only written: something may run it."""
        deferred, self._kept.deferred = self._kept.deferred, []
        for each in deferred:
            if isinstance(each, str):
                self._reader.read(each)
            elif self._kept.captures and self._kept.runs_text:
                self._kept.open("a shell in it may run what another part of it writes")
            elif self._kept.captures:
                self._kept.keep(each, WRITTEN)
                if each.text is not None and _MEANING.search(each.text):
                    self._reader.read(each.text)

    def _expand_word(self, word: ShellWord, use: WordUse) -> list[str]:
        values = self._resolve(word.parts, use=use)
        if use.runs and values.why_open:
            self._kept.open(values.why_open)
        if word.has_braces and (word.hides_braces or len(word.parts) > 1) and use.runs:
            self._kept.open("braces in it hold more than plain words")
        forms: list[str] = []
        for form in values.texts:
            try:
                expanded = expand_braces(form)
            except ValueError:
                expanded = [form]
                if use.runs or word.has_braces:
                    self._kept.open("braces in it are not read")
            forms += expanded
        self._count += len(forms)
        return forms

    def _resolve(self, parts: tuple[Part, ...], *, use: WordUse) -> WordForms:
        """Return the values of a word; variables are looked up first, without recursion."""
        self._look_up([part.name for part in parts if isinstance(part, Variable)])
        return self._combine(parts, use=use)

    def _look_up(self, wanted: Sequence[str]) -> None:
        waiting = list(wanted)
        begun: set[str] = set()
        while waiting:
            name = waiting[-1]
            if name in self._kept.known:
                waiting.pop()
                continue
            values = self._kept.assigned.get(name, {})
            if len(values) > MAX_FORMS:
                self._kept.known[name] = WordForms(("*",), f"{name} has too many values")
                continue
            needed = {part.name for value in values for part in value if isinstance(part, Variable)}
            missing = [each for each in needed if each not in self._kept.known]
            if missing and name not in begun:
                begun.add(name)
                if begun.isdisjoint(missing):
                    waiting += missing
                    continue
            if missing:
                self._kept.known[name] = WordForms(("*",), f"{name} is set from itself")
                continue
            self._kept.known[name] = self._expand_value(name, values)

    def _expand_value(self, name: str, values: Mapping[tuple[Part, ...], None]) -> WordForms:
        texts, why = {"": None}, ""
        for value in values:
            found = self._combine(value, use=STRICT)
            why = why or found.why_open
            texts |= dict.fromkeys(found.texts)
        if len(texts) > MAX_FORMS or sum(map(len, texts)) > MAX_TEXT_CHARS:
            return WordForms(("*",), f"{name} has too many values")
        if any("\\" in text for text in texts):
            why = why or f"the value of {name} holds a backslash"
        return WordForms(tuple(texts), why)

    def _combine(self, parts: tuple[Part, ...], *, use: WordUse) -> WordForms:
        choices: list[tuple[str, ...]] = []
        why, total, size = "", 1, 0
        for at in range(len(parts)):
            found = self._expand_part(parts, at, use=use)
            why = why or found.why_open
            choices.append(found.texts)
            total *= len(found.texts)
            size += max(map(len, found.texts))
        self._count += total
        self._chars += total * size
        if total > MAX_FORMS or self._count > _MAX_VALUES or self._chars > _MAX_FORM_CHARS:
            return WordForms(("*",), "its words have too many forms")
        return WordForms(tuple("".join(chosen) for chosen in product(*choices)), why)

    def _expand_part(self, parts: tuple[Part, ...], at: int, *, use: WordUse) -> WordForms:
        part = parts[at]
        if part is Gap.NUMBER and (use.counts or not use.runs):
            return WordForms(_NUMBERS, "")
        if isinstance(part, Gap):
            return WordForms(("",), part.value)
        if isinstance(part, str):
            return WordForms((part,), "")
        name = part.name
        before, after = parts[at - 1] if at else "", parts[at + 1] if at + 1 < len(parts) else ""
        is_apart = (
            isinstance(before, str) and isinstance(after, str)
            and (not before or before[-1] in " \t\n='\":")
            and (not after or after[0] in "/ \t\n'\":")
        )  # fmt: skip
        if name in _PLACES and is_apart:
            others = self._kept.known[name].texts if name in self._kept.assigned else ()
            return WordForms((_PLACES[name], *others), self._kept.known[name].why_open if others else "")
        if name == "PATH" and isinstance(parts[0], str) and parts[0].startswith("PATH=") and is_apart:
            return WordForms(("",), "")
        if names.is_shells_variable(name):
            return WordForms(("",), f"{name} is set by the shell")
        if name not in self._kept.assigned:
            return WordForms(("",), f"{name} is not set in its text")
        if self._kept.computes:
            return WordForms(self._kept.known[name].texts, f"{name} may be set by what the shell computes")
        return self._kept.known[name]
