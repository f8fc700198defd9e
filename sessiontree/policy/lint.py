"""Slips in a policy: entries that stand for nothing, and additions to nothing."""

from __future__ import annotations

from collections.abc import Iterator

from sessiontree.contracts.suggestion import meant
from sessiontree.policy.settings import PolicyConfig, ProfiledTools, ToolLists, ToolPolicy
from sessiontree.policy.vocabulary import Vocabulary


class PolicyWarning(UserWarning):
    """An owner's policy is probably not meant as it is written; it is used as it stands."""


def slips_of(config: PolicyConfig, words: Vocabulary) -> tuple[str, ...]:
    """Return what is probably not meant as it is written, each with its place.

    A list is used as it stands all the same: an allow list of unknown names alone lets nothing stay.
    """
    return tuple(_slips(config, words))


def _slips(config: PolicyConfig, words: Vocabulary) -> Iterator[str]:
    everyone = config.tools
    yield from _of_policy("tools", everyone, everyone, words)
    for agent, policy in config.agents.items():
        yield from _of_policy(f"agents.{agent}.tools", policy, everyone, words)
    for group, lists in config.groups.items():
        yield from _of_lists(f"groups.{group}.tools", lists, words)
    for plugin, lists in config.plugins.items():
        if not words.of_plugin(plugin):
            yield f"plugins.{plugin}: no plugin of that id brings a tool along"
        yield from _of_lists(f"plugins.{plugin}.tools", lists, words)
    yield from _of_lists("sandbox.tools", config.sandbox, words)
    yield from _of_lists("subagents.tools", config.subagents, words)


def _of_policy(place: str, policy: ToolPolicy, wide: ToolPolicy, words: Vocabulary) -> Iterator[str]:
    yield from _of_profiled(place, policy, wide, words)
    for provider, lists in policy.by_provider.items():
        around = wide.by_provider.get(provider, ProfiledTools())
        yield from _of_profiled(f"{place}.byProvider.{provider}", lists, around, words)


def _of_profiled(place: str, lists: ProfiledTools, wide: ProfiledTools, words: Vocabulary) -> Iterator[str]:
    yield from _of_lists(place, lists, words)
    also = lists.also_allow or ()
    yield from (_unknown(f"{place}.alsoAllow", entry, words) for entry in also if not words.knows(entry))
    if also and lists.profile is None and wide.profile is None:
        yield f"{place}.alsoAllow adds to a profile's list, and there is no profile"


def _of_lists(place: str, lists: ToolLists, words: Vocabulary) -> Iterator[str]:
    for name, entries in (("allow", lists.allow or ()), ("deny", lists.deny)):
        yield from (_unknown(f"{place}.{name}", entry, words) for entry in entries if not words.knows(entry))


def _unknown(place: str, entry: str, words: Vocabulary) -> str:
    return f"{place}: {entry!r} stands for no tool{meant(entry, words.known)}"
