"""Drawn policies: sets of tools, entries of lists, steps, and what the sessions are."""

from __future__ import annotations

import unicodedata
from typing import Literal

from hypothesis import strategies as st

from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, ToolFlag
from sessiontree.policy.catalog import CATALOG, SECTIONS, CatalogRow
from sessiontree.policy.settings import PolicyConfig, ProfiledTools, ToolLists, ToolPolicy
from sessiontree.policy.steps import Standing, Step

OWN = CatalogRow("ledger", "Ledger", "user", PermissionTier.WORKSPACE, MAIN_AND_BRANCH)
PLUGGED = (
    CatalogRow("tune", "Tune", "music", PermissionTier.SYSTEM, MAIN_AND_BRANCH, plugin="radio"),
    CatalogRow(
        "Station-List", "Stations", "music", PermissionTier.READ_ONLY, MAIN_AND_BRANCH,
        flags=frozenset({ToolFlag.OPTIONAL}), aliases=("stations",), plugin="radio",
    ),
)  # fmt: skip
ROWS = (*CATALOG, OWN, *PLUGGED)

NAMES = tuple(name for row in ROWS for name in (row.name, *row.aliases))
GROUPS = (*(f"group:{section}" for section in SECTIONS), "group:openclaw", "group:plugins", "group:user")
GLOBS = ("*", "memory_*", "*_search", "s*n*", "ba*", "**", "*x*")
UNKNOWN = ("nothing", "group:nothing", "read?", "еxec", "no_*_such")
"""The fourth begins with a Cyrillic letter."""

PLAIN_ENTRIES = st.sampled_from((*(row.name for row in ROWS), *GROUPS, "*"))
ENTRIES = st.sampled_from((*NAMES, *GROUPS, *GLOBS, *UNKNOWN, "radio"))
ALLOWS = st.none() | st.lists(ENTRIES, max_size=4).map(tuple)
DENIES = st.lists(ENTRIES, max_size=3).map(tuple)

ROW_SETS = st.lists(st.sampled_from(ROWS), unique_by=lambda row: row.name, max_size=12).map(tuple)
STEPS = st.builds(
    Step,
    label=st.sampled_from("abcdef"),
    number=st.integers(1, 9),
    profile=st.sampled_from(("", "", "", "minimal", "coding", "messaging", "full")),
    allow=ALLOWS,
    deny=DENIES,
    plugin=st.sampled_from(("", "", "", "radio")),
)
STEP_LISTS = st.lists(STEPS, max_size=6)

MODELS = st.sampled_from(("", "scripted", "openai/gpt-5", "openai:gpt-5", "Anthropic/Opus", "mistral:large"))
PROVIDERS = st.sampled_from(("openai", "OpenAI/GPT-5", "anthropic", "mistral/large"))
STANDINGS = st.builds(
    Standing,
    kind=st.sampled_from(SessionKind),
    is_owner=st.booleans(),
    agent=st.sampled_from(("clerk", "clerk", "default")),
    model=MODELS,
    group=st.sampled_from(("family", "family", "")),
)


def spelled(name: str) -> st.SearchStrategy[str]:
    """Return other ways to write a name: case, full width, hyphens, space and full stops at the ends."""
    wide = "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in name)
    assert unicodedata.normalize("NFKC", wide) == name
    forms = st.sampled_from((name, name.upper(), name.title(), wide, name.replace("_", "-")))
    edges = st.sampled_from(("", " ", ".", " .", "\t"))
    return st.tuples(forms, edges, edges).map(lambda parts: parts[1] + parts[0] + parts[2])


def configs(entries: st.SearchStrategy[str] = ENTRIES) -> st.SearchStrategy[PolicyConfig]:
    """Return policies whose lists hold such entries."""
    allow = st.none() | st.lists(entries, max_size=4).map(tuple)
    deny = st.lists(entries, max_size=2).map(tuple)
    profile = st.none() | st.sampled_from(("minimal", "coding", "messaging", "full"))
    lists = st.builds(ToolLists, allow=allow, deny=deny)
    profiled = st.builds(ProfiledTools, allow=allow, deny=deny, profile=profile, also_allow=allow)
    policy = st.builds(
        ToolPolicy,
        allow=allow,
        deny=deny,
        profile=profile,
        also_allow=allow,
        by_provider=st.dictionaries(PROVIDERS, profiled, max_size=2),
    )
    return st.builds(
        PolicyConfig,
        tools=policy,
        agents=st.fixed_dictionaries({"clerk": policy}),
        groups=st.fixed_dictionaries({"family": lists}),
        plugins=st.dictionaries(st.just("radio"), lists, max_size=1),
        sandbox=lists,
        subagents=lists,
    )


def removing_twice(first: int, second: int) -> PolicyConfig:
    """Return a policy in which two of the nine steps remove ``exec``, and no other step does.

    It is for a Branch of the agent ``clerk`` in the group ``family`` whose model is one of ``openai``.
    """
    chosen = {first, second}

    def deny(step: int) -> tuple[str, ...]:
        return ("exec",) if step in chosen else ()

    def profile(step: int) -> Literal["messaging"] | None:
        return "messaging" if step in chosen else None

    wide = ProfiledTools(deny=deny(4), profile=profile(2))
    narrow = ProfiledTools(deny=deny(6))
    return PolicyConfig(
        tools=ToolPolicy(deny=deny(3), profile=profile(1), by_provider={"openai": wide}),
        agents={"clerk": ToolPolicy(deny=deny(5), by_provider={"openai": narrow})},
        groups={"family": ToolLists(deny=deny(7))},
        sandbox=ToolLists(deny=deny(8)),
        subagents=ToolLists(deny=deny(9)),
    )
