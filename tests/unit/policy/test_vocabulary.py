"""REL-P7 and lesson 59: no spelling gets past a list; groups, globs and plugins stand for what they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.policy.catalog import CATALOG, CatalogRow
from sessiontree.policy.vocabulary import Vocabulary, fold_glob, fold_name, split_model_name
from tests.unit.policy.policy_strategies import (
    ENTRIES,
    GLOBS,
    GROUPS,
    NAMES,
    OWN,
    PLUGGED,
    ROW_SETS,
    ROWS,
    spelled,
)

SEARCH = settings(max_examples=120, derandomize=True, database=None, phases=[Phase.generate])
Fold: TypeAlias = Callable[[str], str]
Words: TypeAlias = Callable[[tuple[CatalogRow, ...]], Vocabulary]

SEED_GROUPS = {
    "group:fs": "read write edit apply_patch",
    "group:runtime": "exec process",
    "group:web": "web_search web_fetch",
    "group:memory": "memory_search memory_get",
    "group:sessions": "sessions_list sessions_history sessions_send sessions_spawn subagents session_status "
    "program tool_search",
    "group:ui": "browser canvas",
    "group:messaging": "message",
    "group:automation": "cron gateway",
    "group:nodes": "nodes",
    "group:agents": "agents_list",
    "group:media": "image tts",
}
"""As seed 001, section 2.3, lists them."""
OURS = {
    "group:fs": "find grep child_workspace",
    "group:memory": "memory_store memory_forget",
    "group:messaging": "ask_user",
}
"""What this house has besides."""


def folds_once(fold: Fold) -> None:
    """What is folded stays as it is, and every way to write a name folds to it."""

    @SEARCH
    @given(text=st.text(max_size=12) | st.sampled_from(("İ", "ﬃ", "Ａ．", "ẞ", "ꭰ", " ͅ", "e\u0301.", "-a-")))
    def stays(text: str) -> None:
        assert fold(fold(text)) == fold(text)

    @SEARCH
    @given(data=st.data(), name=st.sampled_from(NAMES))
    def meets(data: st.DataObject, name: str) -> None:
        assert fold(data.draw(spelled(name))) == fold(name)

    stays()
    meets()


@pytest.mark.covers("REL-L59")
def test_names_fold_once() -> None:
    """Case, width, hyphens and edges make no other name."""
    folds_once(fold_name)


@pytest.mark.parametrize("planted", [str.casefold, str.strip, lambda name: name.strip(" .").lower()])
def test_planted_fold_is_found(planted: Fold) -> None:
    """Folding case alone, edges alone, or both without width is not enough."""
    with pytest.raises(AssertionError):
        folds_once(planted)


def spelling_is_no_matter(made: Words) -> None:
    """REL-P7: an entry means the same however it is written; an alias in it means its tool."""

    @SEARCH
    @given(data=st.data(), entry=st.sampled_from((*NAMES, *GROUPS, *GLOBS)), rows=ROW_SETS)
    def check(data: st.DataObject, entry: str, rows: tuple[CatalogRow, ...]) -> None:
        words = made(rows)
        other = data.draw(spelled(entry))
        assert words.denied(other) == words.denied(entry)
        assert words.allowed(other) == words.allowed(entry)
        assert words.is_known(other) == words.is_known(entry)

    check()
    words = made(ROWS)
    for row in ROWS:
        for name in (row.name, *row.aliases):
            assert words.list_names(words.denied(name)) == (row.name,)
            assert words.list_names(words.allowed(name)) == (row.name,)


@pytest.mark.covers("REL-P7", "REL-L8", "REL-L59")
def test_spelling_is_no_matter() -> None:
    """Deny ``exec``, and ``Bash``, ``SHELL`` in full width and ``exec.`` are denied with it."""
    spelling_is_no_matter(Vocabulary)


class ExactWords(Vocabulary):
    """Planted: entries are compared as they are written."""

    def denied(self, entry: str) -> int:
        """Return the tools of exactly that name."""
        return self.get_bit(entry) or (super().denied(entry) if "*" in entry or ":" in entry else 0)


class NamelessWords(Vocabulary):
    """Planted: aliases are no names."""

    def denied(self, entry: str) -> int:
        """Return the tools of that name, without what it is an alias of."""
        return super().denied(entry) if fold_name(entry) not in {"bash", "shell"} else 0


@pytest.mark.covers("REL-P7")
@pytest.mark.parametrize("planted", [ExactWords, NamelessWords])
def test_planted_reading_is_found(planted: Words) -> None:
    """A deny list that a capital letter or an alias gets past fails the property."""
    with pytest.raises(AssertionError):
        spelling_is_no_matter(planted)


@SEARCH
@given(entry=ENTRIES, rows=ROW_SETS)
def test_what_an_entry_allows_it_also_denies(entry: str, rows: tuple[CatalogRow, ...]) -> None:
    """Deny entries reach at least as far as allow entries, never the other way round."""
    words = Vocabulary(rows)
    assert words.allowed(entry) & ~words.denied(entry) == 0


@pytest.mark.covers("S17", "S18", "S19", "REL-P6")
def test_groups_are_the_specification_s() -> None:
    """Eleven groups by section, with what this house adds; ``group:openclaw`` lacks files and runtime."""
    words = Vocabulary(CATALOG)
    for group, names in SEED_GROUPS.items():
        assert set(words.list_names(words.allowed(group))) == {*names.split(), *OURS.get(group, "").split()}
    outside = {*SEED_GROUPS["group:fs"].split(), *OURS["group:fs"].split(), "exec", "process"}
    further = {row.name for row in CATALOG if row.section in {"landing", "network"}}
    openclaw = set(words.list_names(words.allowed("group:openclaw")))
    assert openclaw == {row.name for row in CATALOG} - outside - further


@pytest.mark.covers("S21")
def test_plugins_are_named_by_their_id_and_together() -> None:
    """``radio`` and ``group:plugins`` are the plugin's tools; its section is a group too."""
    words = Vocabulary((*CATALOG, OWN, *PLUGGED))
    for entry in ("radio", "RADIO", "group:plugins", "group:music"):
        assert words.list_names(words.allowed(entry)) == ("tune", "Station-List")
        assert words.denied(entry) == words.allowed(entry)
    assert words.list_names(words.allowed("group:user")) == ("ledger",)


def test_glob_that_denies_sees_aliases_and_one_that_allows_does_not() -> None:
    """Deny ``ba*`` removes what ``bash`` calls; allow ``ba*`` lets no shell in by a side name."""
    words = Vocabulary(CATALOG)
    assert words.list_names(words.denied("ba*")) == ("exec",)
    assert words.allowed("ba*") == 0


def test_tool_that_takes_the_place_of_another_falls_under_its_deny() -> None:
    """A program's own ``bash`` is denied with ``exec``; a list that allows ``exec`` does not let it in."""
    words = Vocabulary([CatalogRow("bash", "Bash", "user", OWN.tier, OWN.kinds)])
    assert words.list_names(words.denied("exec")) == ("bash",)
    assert words.allowed("exec") == 0
    assert words.list_names(words.allowed("bash")) == ("bash",)


@pytest.mark.covers("POL13")
@pytest.mark.parametrize(
    ("entry", "fits", "fails"),
    [
        ("Memory_[!g]*", ["memory_search"], ["memory_get"]),
        ("memory-[^g]*", ["memory_search"], ["memory_get"]),
        ("MEMORY[-]???", ["memory_get"], ["memory_search"]),
        ("memory[x-]get", ["memory_get", "memoryxget"], ["memoryyget"]),
        ("memory[!-]get", ["memoryxget"], ["memory_get"]),
        (" web_[A-F]* ", ["web_fetch"], ["web_search"]),
        (r"\*", ["*"], ["exec"]),
        ("ＥＸＥＣ*", ["exec"], ["read"]),
        ("[[:lower:]]*_get", ["memory_get"], ["1_get"]),
    ],
)
def test_globs_of_lists_are_folded_as_names_are(entry: str, fits: list[str], fails: list[str]) -> None:
    """The language of all globs, over folded names."""
    glob = fold_glob(entry)
    assert glob is not None
    assert [name for name in fits + fails if glob.fits(name)] == fits


@pytest.mark.parametrize("entry", ["!memory_*", "memory_*\\", "[[:small:]]*", "memory_[z-a]"])
def test_entry_that_fits_nothing_is_unknown(entry: str) -> None:
    """So it is reported (POL6), and it allows and denies nothing."""
    words = Vocabulary(CATALOG)
    assert not words.is_known(entry)
    assert words.allowed(entry) == words.denied(entry) == 0


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("OpenAI/GPT-5", ("openai", "gpt_5")),
        ("openai:gpt-5", ("openai", "gpt_5")),
        ("router/openai/gpt-5:beta", ("router", "openai/gpt_5:beta")),
        ("scripted", ("", "scripted")),
        ("", ("", "")),
    ],
)
def test_model_s_provider_is_its_first_part(model: str, parts: tuple[str, str]) -> None:
    """Either sign parts them; only the first one counts."""
    assert split_model_name(model) == parts
