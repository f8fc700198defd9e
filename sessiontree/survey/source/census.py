"""Census: what files hold, counted, and how the counts of many files are joined.

A Worker counts one group of files, a Branch joins its Workers' counts, Main joins those of the Branches.
Lists are bounded: the best entries stay, and of notes and problems those left out are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.survey.source.manifests import Project

NOTES_KEPT = 200
PROBLEMS_KEPT = 100
LINKS_KEPT = 3_000
FOLDERS_KEPT = 1_000


class CensusPart(BaseModel):
    """Base of what sessions hand to each other."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Totals(CensusPart):
    """Amounts of a set of files; ``lines == code + comment + blank``."""

    files: int = 0
    bytes: int = 0
    lines: int = 0
    code: int = 0
    comment: int = 0
    blank: int = 0
    functions: int = 0
    classes: int = 0

    def __add__(self, other: Totals) -> Totals:
        """Return the sums."""
        return Totals(**{name: value + getattr(other, name) for name, value in self})


class Place(CensusPart):
    """A place in a file, and what is worth telling of it."""

    path: str
    line: int = 1
    name: str = ""
    """The function that is there."""
    amount: int = 0
    """Its lines, or its complexity; of a file its lines."""
    text: str = ""
    """What is said there, or why it is a problem; of a copy the digest of its body."""
    names: tuple[str, ...] = ()
    """A package's public names."""


class Findings(CensusPart):
    """What a group of files holds."""

    totals: Totals = Totals()
    languages: dict[str, Totals] = Field(default_factory=dict)
    folders: dict[str, Totals] = Field(default_factory=dict)
    """By the first two parts of the path; ``.`` for files in the root."""
    about: tuple[Place, ...] = ()
    """READMEs and packages, with what they say the thing is."""
    projects: tuple[Project, ...] = ()
    starts: tuple[Place, ...] = ()
    """Where programs start."""
    public: tuple[Place, ...] = ()
    """Files whose names are a package's public ones."""
    longest: tuple[Place, ...] = ()
    """Functions by their lines."""
    most_complex: tuple[Place, ...] = ()
    largest: tuple[Place, ...] = ()
    """Files by their lines."""
    notes: tuple[Place, ...] = ()
    """Comments that say what is left to do."""
    notes_dropped: int = 0
    copies: tuple[Place, ...] = ()
    """Functions by the digest of their bodies, to find their equals."""
    imports: dict[str, int] = Field(default_factory=dict)
    """Package to how many files import it."""
    problems: tuple[Place, ...] = ()
    """What could not be surveyed, or not wholly."""
    problems_dropped: int = 0
    unread: int = 0
    ignored: int = 0
    """Files, directories and links left out on purpose."""
    records: int = 0
    """Records put into memory."""
    records_dropped: int = 0
    """Records that would have been too many."""

    def amounts(self) -> Findings:
        """Return the same without lists: notes and problems are counted as dropped."""
        counts = {name: getattr(self, name) for name in ("records", "records_dropped")}
        for name in ("notes", "problems"):
            counts[f"{name}_dropped"] = len(getattr(self, name)) + getattr(self, f"{name}_dropped")
        return Findings(totals=self.totals, languages=self.languages, **counts)


def choose_folder(path: str) -> str:
    """Return the folder under which a file is counted: at most two parts, ``.`` for the root."""
    parts = path.split("/")[:-1]
    return "/".join(parts[:2]) or "."


def _order_by_depth(one: Place | Project) -> tuple[int, str, int]:
    """Order files by how near to the root they are; a newcomer looks there first."""
    return one.path.count("/"), one.path, getattr(one, "line", 0)


def _order_by_amount(one: Place) -> tuple[int, str, int]:
    return -one.amount, one.path, one.line


_LISTS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "about": (40, _order_by_depth),
    "projects": (60, _order_by_depth),
    "starts": (40, _order_by_depth),
    "public": (40, _order_by_depth),
    "longest": (20, _order_by_amount),
    "most_complex": (20, _order_by_amount),
    "largest": (20, _order_by_amount),
    "copies": (2_000, _order_by_amount),
    "notes": (NOTES_KEPT, attrgetter("path", "line", "text")),
    "problems": (PROBLEMS_KEPT, attrgetter("path", "line", "text")),
}
"""How many entries of each list are kept, and in which order."""
_COUNTS = ("notes_dropped", "problems_dropped", "unread", "ignored", "records", "records_dropped")


def merge(parts: Iterable[Findings]) -> Findings:
    """Return what many groups hold together; the order of the groups makes no difference."""
    level = list(parts)
    members: dict[str, Any] = {name: sum(getattr(one, name) for one in level) for name in _COUNTS}
    for name, (most, key) in _LISTS.items():
        # Sorted by the entry alone, so that the report is the same whichever Worker was done first.
        entries = sorted((entry for one in level for entry in getattr(one, name)), key=key)
        members[name] = tuple(entries[:most])
        if f"{name}_dropped" in members:
            members[f"{name}_dropped"] += max(0, len(entries) - most)
    imports = _add_tables(one.imports for one in level)
    folders = _add_tables(one.folders for one in level)
    return Findings(
        totals=sum((one.totals for one in level), Totals()),
        languages=_add_tables(one.languages for one in level),
        folders=_keep_largest(folders, FOLDERS_KEPT, lambda name: folders[name].lines),
        imports=_keep_largest(imports, LINKS_KEPT, lambda name: imports[name]),
        **members,
    )


def _add_tables(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    sums: dict[str, Any] = {}
    for table in tables:
        for name, amount in table.items():
            sums[name] = sums[name] + amount if name in sums else amount
    return dict(sorted(sums.items()))


def _keep_largest(table: Mapping[str, Any], most: int, amount: Callable[[str], int]) -> dict[str, Any]:
    """Return a table's largest entries, by name."""
    kept = sorted(table, key=lambda name: (-amount(name), name))[:most]
    return {name: table[name] for name in sorted(kept)}


def fit_findings(findings: Findings, max_chars: int) -> Findings:
    """Return findings whose JSON text has at most so many characters; the longest lists are halved first.

    Raises:
        ValueError: the counts alone are longer.
    """
    while len(findings.model_dump_json()) > max_chars:
        sizes = {name: len(repr(getattr(findings, name))) for name in (*_LISTS, "imports", "folders")}
        name = max(sizes, key=lambda name: sizes[name])
        entries = getattr(findings, name)
        if not entries:
            raise ValueError(f"findings do not fit into {max_chars:,} characters; allow more")
        kept = list(entries.items() if isinstance(entries, dict) else entries)[: len(entries) // 2]
        update: dict[str, Any] = {name: type(entries)(kept)}
        if (dropped := f"{name}_dropped") in _COUNTS:
            update[dropped] = getattr(findings, dropped) + len(entries) - len(kept)
        findings = findings.model_copy(update=update)
    return findings
