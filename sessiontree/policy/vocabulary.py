"""What the entries of lists mean for the tools of one tree. Sets of tools are bit masks here.

A deny entry covers more than an allow entry, so that neither grants too much: it denies every tool with any
of the entry's names, but allows only the one tool that it names. Another spelling of a name can't bypass a
list.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from sessiontree.contracts.values.glob import WILD, Glob, Piece, compile_glob, split_glob
from sessiontree.policy.catalog import CATALOG, FULL, CatalogRow

_EDGES = string.whitespace + "."


@lru_cache(maxsize=4096)
def fold_name(name: str) -> str:
    """Return the form in which names and list entries are compared; a folded name stays the same.

    Compatibility forms and case are folded (NFKC, Unicode's casefold), ``-`` counts as ``_``, and white
    space and full stops at the ends are ignored. Letters that only look alike stay different: such a name
    is unknown.
    """
    return _fold_letters(name).replace("-", "_")


def _fold_letters(name: str) -> str:
    """Return a name as it is folded, except for its hyphens."""
    if name.isascii():
        name = name.lower()
    else:
        before = ""
        while before != name:  # folding case can leave a sequence that NFKC joins, and vice versa
            before, name = name, unicodedata.normalize("NFKC", name).casefold()
    return name.strip(_EDGES)


def fold_glob(entry: str) -> Glob | None:
    """Return the glob of a list entry, folded as names are; None if it has no wildcards or can't be read.

    Inside brackets ``-`` also means ``_``, because no folded name holds it.
    """
    bare = _fold_letters(entry)
    if WILD.isdisjoint(bare):
        return None
    try:
        return compile_glob("".join(map(_fold_piece, split_glob(bare))))
    except ValueError:
        return None  # an entry that matches nothing is reported as unknown


def _fold_piece(piece: Piece) -> str:
    if piece.kind == "text":
        return piece.written.replace("-", "_")
    if piece.kind != "class":
        return piece.written
    is_other = piece.written[1:2] in {"!", "^"}
    takes_hyphen = Glob(piece.written).fits("-") is not is_other
    if not takes_hyphen:
        return piece.written
    # A hyphen at the end stays there: before another character it would make a range.
    inside = piece.written[:-1]
    return f"{inside[:-1]}_-]" if inside.endswith("-") else f"{inside}_]"


def split_model_name(model: str) -> tuple[str, str]:
    """Return provider and model of ``provider/model`` or ``provider:model``, folded; ``""`` = no provider."""
    named = fold_name(model)
    cuts = [at for at in (named.find("/"), named.find(":")) if at >= 0]
    if not cuts:
        return "", named
    return named[: min(cuts)], named[min(cuts) + 1 :]


GROUP = "group:"
PLUGINS = "group:plugins"
OPENCLAW = "group:openclaw"


class Vocabulary:
    """The tools of one tree by every name that a list may use for them.

    Args:
        rows: Their rows; names are unique.
    """

    def __init__(self, rows: Iterable[CatalogRow]) -> None:
        self.rows = tuple(rows)
        self.all = (1 << len(self.rows)) - 1
        """The mask of all tools."""
        self._rows = {row.name: row for row in self.rows}
        self._bits = {row.name: 1 << at for at, row in enumerate(self.rows)}
        self._spellings = [_list_spellings(row) for row in self.rows]
        self._names = dict.fromkeys(spelling for row in CATALOG for spelling in _list_spellings(row))
        self._kin = {spelling: _list_spellings(row) for row in CATALOG for spelling in _list_spellings(row)}
        self._groups = self._collect_groups()
        self._allowed: dict[str, int] = {}
        self._denied: dict[str, int] = {}
        self._plugins: dict[str, int] = {}
        for row in self.rows:
            if row.plugin:
                identity = fold_name(row.plugin)
                self._plugins[identity] = self._plugins.get(identity, 0) | self._bits[row.name]

    def _collect_groups(self) -> dict[str, int]:
        groups = {PLUGINS: 0, OPENCLAW: 0}
        # A custom tool with a name from the table also belongs to the groups of that name.
        named = {row.name: row for row in CATALOG}
        for each in CATALOG:
            groups.setdefault(GROUP + each.section, 0)
        for row in self.rows:
            bit = self._bits[row.name]
            listed = named.get(row.name)
            sections = {row.section} | ({listed.section} if listed is not None else set())
            for section in sections:
                key = GROUP + fold_name(section)
                groups[key] = groups.get(key, 0) | bit
            if row.in_openclaw or (listed is not None and listed.in_openclaw):
                groups[OPENCLAW] |= bit
            if row.plugin:
                groups[PLUGINS] |= bit
        return groups

    def get_bit(self, name: str) -> int:
        """Return the mask of one tool by its exact name; 0 if no tool has it."""
        return self._bits.get(name, 0)

    def list_names(self, mask: int) -> tuple[str, ...]:
        """Return the names in a mask, in the rows' order."""
        return tuple(row.name for at, row in enumerate(self.rows) if mask >> at & 1)

    def find(self, spelling: str) -> CatalogRow | None:
        """Return the row of a name or alias, in any spelling."""
        wanted = fold_name(spelling)
        named = zip(self.rows, self._spellings, strict=True)
        return next((row for row, spellings in named if wanted in spellings), None)

    def row(self, name: str) -> CatalogRow:
        """Return the row of an exact name.

        Raises:
            KeyError: no tool has the name.
        """
        return self._rows[name]

    def select_plugin(self, plugin: str) -> int:
        """Return the tools of a plugin; 0 for an unknown plugin."""
        return self._plugins.get(fold_name(plugin), 0)

    def profile(self, profile: str) -> int:
        """Return the tools that a profile includes."""
        if profile == FULL:
            return self.all
        return sum(self._bits[row.name] for row in self.rows if profile in row.profiles)

    def allowed(self, entry: str) -> int:
        """Return the tools that an allow entry keeps."""
        mask = self._allowed.get(entry)
        if mask is None:
            mask = self._allowed[entry] = self._let_stay(entry)
        return mask

    def denied(self, entry: str) -> int:
        """Return the tools that a deny entry removes; they include all that the same entry would allow."""
        mask = self._denied.get(entry)
        if mask is None:
            mask = self._denied[entry] = self._let_go(entry)
        return mask

    def _let_stay(self, entry: str) -> int:
        wanted = fold_name(entry)
        if wanted.startswith(GROUP):
            return self._groups.get(wanted, 0)
        glob = fold_glob(entry)
        if glob is not None:
            # By its name alone: an allow entry that also matched aliases would allow more than its owner
            # reads in it.
            return self._mask(glob.fits(fold_name(row.name)) for row in self.rows)
        return self._mask(wanted in spellings for spellings in self._spellings) or self._plugins.get(
            wanted, 0
        )

    def _let_go(self, entry: str) -> int:
        wanted = fold_name(entry)
        if wanted.startswith(GROUP):
            return self._groups.get(wanted, 0)
        glob = fold_glob(entry)
        if glob is not None:
            return self._mask(
                any(glob.fits(spelling) for spelling in spellings) for spellings in self._spellings
            )
        # An alias from the table denies every name of its tool: denying `bash` must not leave `exec`.
        kin = self._kin.get(wanted, frozenset({wanted}))
        named = self._mask(not kin.isdisjoint(spellings) for spellings in self._spellings)
        return named | self._plugins.get(wanted, 0)

    def is_known(self, entry: str) -> bool:
        """Whether an entry names a tool here, or one in the table."""
        wanted = fold_name(entry)
        if wanted.startswith(GROUP):
            return wanted in self._groups
        glob = fold_glob(entry)
        if glob is not None:
            return self.denied(entry) != 0 or any(glob.fits(name) for name in self._names)
        return self.denied(entry) != 0 or wanted in self._names

    @property
    def known(self) -> frozenset[str]:
        """Every valid entry here except patterns: tools, aliases, groups, plugins."""
        return frozenset().union(self._names, self._groups, self._plugins, *self._spellings)

    def _mask(self, fits: Iterable[bool]) -> int:
        return sum(1 << at for at, fit in enumerate(fits) if fit)


def _list_spellings(row: CatalogRow) -> frozenset[str]:
    return frozenset(fold_name(name) for name in (row.name, *row.aliases))
