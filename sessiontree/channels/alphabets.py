"""Words that look like others: letters of several alphabets in one word, or letters of unusual width.

A Cyrillic letter in a Latin word can't be told from its twin by eye, and names something else. Words in one
alphabet, whichever, are left alone, and so are the scripts of East Asia, whose words hold others' letters.

Source: Unicode Technical Standard 39, "Unicode Security Mechanisms", mixed-script detection; scripts are told
by the characters' names.
"""

from __future__ import annotations

import unicodedata
from itertools import groupby
from typing import Final

_TWINS: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})
"""Alphabets with letters that look like those of many others."""
_WITH_OTHERS: Final = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO"})
"""Scripts whose words hold letters of others, and that have no twins among them."""
_ODD_LATIN: Final = frozenset("ɑɡɩſꬵƅƽɋʋᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡʏᴢꞮꞬ")
"""Latin letters of other shapes than those they are taken for: small capitals, letters of phonetics."""


def deceptive_words(text: str) -> tuple[str, ...]:
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
