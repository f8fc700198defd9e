"""Names as they are compared: no spelling of a tool's name gets past a list that holds another."""

from __future__ import annotations

import string
import unicodedata

_EDGES = string.whitespace + "."


def folded(name: str) -> str:
    """Return the form in which names and list entries are compared; a folded name is folded to itself.

    Compatibility forms and case are folded (NFKC, Unicode's casefold), ``-`` counts as ``_``, neither white
    space nor full stops at the ends count. Letters that only look alike stay different: such a name is
    unknown.
    """
    if name.isascii():
        name = name.lower()
    else:
        before = ""
        while before != name:  # folding case can leave what NFKC joins, and the other way round
            before, name = name, unicodedata.normalize("NFKC", name).casefold()
    return name.strip(_EDGES).replace("-", "_")


def glob_fits(glob: str, name: str) -> bool:
    """Whether a name fits a glob whose only sign is ``*``, any run of characters; linear in the name.

    Source: the pattern language of the specification's source system: anchored, all else literal.
    """
    if "*" not in glob:
        return glob == name
    first, *middle, last = glob.split("*")
    at, end = len(first), len(name) - len(last)
    if at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def provider_of(model: str) -> tuple[str, str]:
    """Return provider and model of ``provider/model`` or ``provider:model``, folded; ``""`` = no provider."""
    named = folded(model)
    cuts = [at for at in (named.find("/"), named.find(":")) if at >= 0]
    if not cuts:
        return "", named
    return named[: min(cuts)], named[min(cuts) + 1 :]
