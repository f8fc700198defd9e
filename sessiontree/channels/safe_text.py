"""Text made safe to show: nothing in it can deceive a reader or a terminal.

Control, bidirectional and invisible characters are escaped. A warning names words that mix letters of several
alphabets or contain letters of unusual width: a Cyrillic letter in a Latin word looks like its Latin twin,
but the word names something else. Words in a single alphabet pass, and so do the scripts of East Asia, whose
words mix scripts.
Source: Unicode Technical Standard 39, "Unicode Security Mechanisms", mixed-script detection; a character's
script is read from its name.
"""

from __future__ import annotations

import unicodedata
from itertools import groupby
from typing import Final

from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.values.jsonable import dump_readable

_TWINS: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})
"""Alphabets with letters that look like those of many others."""
_WITH_OTHERS: Final = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO"})
"""Scripts whose words contain letters of other scripts, without look-alikes among them."""
_ODD_LATIN: Final = frozenset("ɑɡɩſꬵƅƽɋʋᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡʏᴢꞮꞬ")
"""Latin letters that look like other ones: small capitals and phonetic letters."""


def find_deceptive_words(text: str) -> tuple[str, ...]:
    """Return the words of a text that mix alphabets or forms of letters, each once, in order."""
    if text.isascii():
        return ()
    words = ("".join(group) for is_word, group in groupby(text, _is_letter) if is_word)
    return tuple(dict.fromkeys(word for word in words if not word.isascii() and _is_deceptive(word)))


def _is_letter(character: str) -> bool:
    return character.isalpha() or unicodedata.category(character) == "Nl"


def _is_deceptive(word: str) -> bool:
    if any(_is_form(letter) for letter in word) and any(letter.isalpha() for letter in word):
        return True
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in word} - _WITH_OTHERS
    if len(scripts) > 1 and not scripts.isdisjoint(_TWINS):
        return True
    return not _ODD_LATIN.isdisjoint(word) and any(letter.isascii() for letter in word)


def _is_form(letter: str) -> bool:
    """Whether a letter is another form of Latin ones: wide, mathematical, in script, a Roman numeral."""
    if letter.isascii() or unicodedata.name(letter, "").startswith("LATIN "):
        return False
    plain = unicodedata.normalize("NFKC", letter)
    return plain != letter and plain.isascii() and plain.isalpha()


_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_BLANK = {"\u115f", "\u1160", "\u3164", "\uffa0", "\u2800", "\u034f"}


def make_visible(text: str) -> str:
    r"""Return text with every control, bidirectional, invisible and unassigned character as ``\\u{…}``.

    Spaces other than U+0020 are escaped too; letters, marks, digits, punctuation and symbols stay.
    """
    if text.isascii() and text.isprintable():  # nearly every text is: it is not looked at letter by letter
        return text
    return "".join(_escape_character(character) for character in text)


def _escape_character(character: str) -> str:
    if character == " " or (character.isascii() and character.isprintable()):
        return character
    category = unicodedata.category(character)
    if category in _HIDDEN or category == "Zs" or character in _BLANK or _is_variation(character):
        return f"\\u{{{ord(character):x}}}"
    return character


def _is_variation(character: str) -> bool:
    code = ord(character)
    return 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF or 0x180B <= code <= 0x180F


def format_approval(request: ApprovalRequest) -> str:
    """Return the text a person decides on: who asks, for whom, for which tool and tier, all arguments."""
    arguments = make_visible(dump_readable(request.arguments))
    askers = "; ".join(_describe_asker(asker) for asker in request.asked_by)
    shown = f"{make_visible(request.session_id)} {make_visible(request.tool)} {arguments} {askers}"
    return (
        f"{make_visible(request.session_id)} wants to call {make_visible(request.tool)} ({request.tier})\n"
        f"  arguments: {arguments}\n"
        f"  request:   {request.request_id}"
        f"{_format_line('for', askers)}"
        f"{_format_line('open', _open(request.opens))}"
        f"{_describe_always(request.covers)}"
        f"{_format_warning(shown)}"
    )


def format_question(request: ApprovalRequest) -> str:
    """Return the question about a request, with how far each answer goes."""
    if request.covers is None:
        always = "[a]lways this tool, "
    elif request.covers:
        always = f"[a]lways {make_visible(', '.join(request.covers))}, "
    else:
        always = ""
    return f"allow? [y]es once, {always}[n]o, for good, [l]ater: "


def refuse_always(request: ApprovalRequest, answer: ApprovalAnswer | None) -> str:
    """Return why an answer is not taken: it says *always* where that would cover nothing. Empty = it is."""
    if answer is None or not answer.always or request.covers != ():
        return ""
    return "(always would cover no later call of this command, because what it does can't be judged: y or n?)"


def _format_line(name: str, text: str) -> str:
    return f"\n  {name + ':':<10} {text}" if text else ""


def _open(why: str) -> str:
    """Return what a yes to an open command does not cover."""
    if not why:
        return ""
    return (
        "it may run files that its words do not name, and a yes does not say what those hold; the yes ends "
        f"with any change to a file of the workspace ({make_visible(why)})"
    )


def _describe_asker(asker: Principal) -> str:
    """Return on whose behalf a call is made; names are quoted, so that none can pass for another's id."""
    said = {"id": asker.id, "name": asker.name, "channel": asker.channel, "group": asker.group}
    words = (f"{what} {make_visible(dump_readable(text))}" for what, text in said.items() if text)
    return ", ".join(("an owner" if asker.is_owner else "no owner", *words))


def _format_warning(text: str) -> str:
    words = find_deceptive_words(text)
    if not words:
        return ""
    return _format_line("beware", f"letters of several alphabets, or unusual ones, in {', '.join(words)}")


def _describe_always(covers: tuple[str, ...] | None) -> str:
    """Return the line about what an *always* would cover, if that is less than every call of the tool."""
    if covers is None:
        return ""
    return _format_line(
        "always", make_visible(", ".join(covers)) or "this call alone; its command can't be judged"
    )
