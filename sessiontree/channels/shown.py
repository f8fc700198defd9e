"""How a request is shown to a person: all of it, and nothing that could deceive an eye or a terminal."""

from __future__ import annotations

import unicodedata

from sessiontree.channels.alphabets import deceptive_words
from sessiontree.contracts.approvals import ApprovalRequest
from sessiontree.contracts.jsonable import dump_readable
from sessiontree.contracts.senders import Principal

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_BLANK = {"\u115f", "\u1160", "\u3164", "\uffa0", "\u2800", "\u034f"}


def visible(text: str) -> str:
    r"""Return text with every control, bidirectional, invisible and unassigned character as ``\\u{…}``.

    Spaces other than U+0020 are escaped too; letters, marks, digits, punctuation and symbols stay.
    """
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character == " " or (character.isascii() and character.isprintable()):
        return character
    category = unicodedata.category(character)
    if category in _HIDDEN or category == "Zs" or character in _BLANK or _is_variation(character):
        return f"\\u{{{ord(character):x}}}"
    return character


def _is_variation(character: str) -> bool:
    code = ord(character)
    return 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF or 0x180B <= code <= 0x180F


def prompt_of(request: ApprovalRequest) -> str:
    """Return the text a person decides on: who asks, for whom, for which tool and tier, all arguments."""
    arguments = visible(dump_readable(request.arguments))
    askers = "; ".join(_asker(asker) for asker in request.asked_by)
    return (
        f"{visible(request.session_id)} wants to call {visible(request.tool)} ({request.tier})\n"
        f"  arguments: {arguments}\n"
        f"  request:   {request.request_id}"
        f"{_line('for', askers)}"
        f"{_always(request.covers)}"
        f"{_beware(f'{visible(request.session_id)} {visible(request.tool)} {arguments} {askers}')}"
    )


def _line(name: str, text: str) -> str:
    return f"\n  {name + ':':<10} {text}" if text else ""


def _asker(asker: Principal) -> str:
    """Return whom a call is for, all they say of themselves quoted: no name passes for another's id."""
    said = {"id": asker.id, "name": asker.name, "channel": asker.channel, "group": asker.group}
    words = (f"{what} {visible(dump_readable(text))}" for what, text in said.items() if text)
    return ", ".join(("an owner" if asker.is_owner else "no owner", *words))


def _beware(text: str) -> str:
    words = deceptive_words(text)
    if not words:
        return ""
    return _line("beware", f"letters of several alphabets, or unusual ones, in {', '.join(words)}")


def _always(covers: tuple[str, ...] | None) -> str:
    """Return the line about what an *always* would cover, where that is less than every call of the tool."""
    if covers is None:
        return ""
    return _line("always", visible(", ".join(covers)) or "this call alone; its command can't be judged")
