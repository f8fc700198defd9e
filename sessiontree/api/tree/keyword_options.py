"""The options that methods of trees and sessions take as keywords, each described once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypedDict

from sessiontree.api.options.app import AppOptions
from sessiontree.api.options.options import GuidanceSource, PolicyLike
from sessiontree.api.runtime.runtime_options import ServedOptions
from sessiontree.api.tree.child_results import OnChildError
from sessiontree.contracts.kinds import WorkspaceChoice
from sessiontree.contracts.recorded.approvals import ApprovalMode, Rule
from sessiontree.contracts.settings.given_values import (
    Choice,
    Give,
    Instance,
    Lifetime,
    Parts,
    Positive,
    Text,
    Toggle,
)
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.settings.settings import Budget, Limits

_Budget: TypeAlias = Annotated[Budget | None, Instance("a Budget, or None for no bound of its own")]
SettingsGiven: TypeAlias = Annotated[ModelSettings | None, Instance("ModelSettings, or None")]


class ResumeOptions(AppOptions, ServedOptions, total=False):
    """Where a tree is kept and served; and the members of its :class:`App`, unless that is given."""

    state_dir: str | Path | None
    """Directory of the journal. None = for a new tree, one per workspace in the platform's state folder; for
    a tree that is resumed, that of the working directory."""


class TreeOptions(ResumeOptions, total=False):
    """Settings of a new tree. Its journal holds all of them, except where it is served and its app."""

    limits: Annotated[Limits | None, Instance("Limits, or None for the defaults")]
    """Limits of the tree; None = the defaults."""
    budget: _Budget
    """Budget of the whole tree; None = no bound."""
    agent: Text
    """Name of Main's agent, ``default`` by default."""
    approvals: Annotated[ApprovalMode | None, Choice()]
    """``auto`` approves and records it, ``smart`` applies ``smart_rules`` before it asks a person and
    approves commands known to be harmless, ``always`` asks each time, ``never`` refuses. A mode that is named
    also governs System calls, such as commands; None = Elevated calls are asked about and System calls
    run."""
    smart_rules: Annotated[Sequence[Annotated[Rule, Instance("a Rule")]], Parts("a list of Rules")]
    """Rules that mode ``smart`` applies by itself."""
    purpose: Annotated[str, Give("text")]
    """Purpose of the tree, for listings; empty = the name of the program."""
    dedicated: Toggle
    """Whether each session keeps its own host for life."""
    child_workspace: Annotated[WorkspaceChoice, Choice()]
    """Where Branches work unless their spawn or their agent says so: ``shared``, the default, or ``own``."""
    policy: Annotated[PolicyLike, Instance("a PolicyConfig, the path of its file or None")]
    """Which tools its sessions may hold, or the path of a JSON or TOML file that says so; None = all that
    kind and agent allow. It only removes tools."""
    group: Annotated[str, Give("text")]
    """Group of the channel and of every session, for the policy's ``groups``."""
    agents_md: Annotated[GuidanceSource | None, Choice()]
    """Whose text the workspace's AGENTS.md is: the ``workspace``'s, the default, marked as untrusted; that of
    a ``trusted`` workspace, quoted, which sessions may follow; or the ``owner``'s. It joins the prompts of
    sessions that read files; with None, it joins no prompt."""


_Workspace: TypeAlias = Annotated[WorkspaceChoice | None, Choice()]


class _SharedChildOptions(TypedDict, total=False):
    """Settings of children, however they are started."""

    agent: Annotated[str | None, Give("the name of an agent, or None for the parent's")]
    """Agent a child runs as; None = its parent's."""
    budget: _Budget
    """Budget reserved for a child and everything below it; None = it uses the rest of its parent's."""
    settings: SettingsGiven
    """Model settings that differ from its agent's."""
    skills: Annotated[Sequence[Text] | None, Parts("a list of names, or None for those of its agent")]
    """Names of the skills that it may read, of those its parent holds; None = those that its agent names."""
    workspace: _Workspace
    """``own``: it works in a copy of its parent's workspace, made now; the parent merges or discards what it
    changed (:attr:`~sessiontree.SessionHandle.child_workspaces`). ``shared``: it works where its parent does.
    None = as its agent or the tree says. Only a Branch that may write can have its own."""


class ChildOptions(_SharedChildOptions, total=False):
    """Settings of one child."""

    ttl_s: Lifetime
    """Time to live in seconds, from its first adoption; None = the default of its kind."""


class SpawnOptions(ChildOptions, total=False):
    """Settings of a child with a handle."""

    program: Annotated[Text | None, Give("the name of a saved program, the text of a program, or None")]
    """The program that it runs instead of asking a model: the name of a saved one, or its text. Its value is
    the child's result; the task says only what it is for."""
    inputs: Annotated[Mapping[str, Any] | None, Give("values by name, or None")]
    """Arguments of a saved program, or variables of the text; only with ``program``."""
    label: Annotated[Text | None, Give("text with something in it, or None for no name")]
    """Name among its siblings."""
    dedicated: Toggle
    """Whether it keeps its own host for life."""
    stays_open: Annotated[bool | None, Give("True, False, or None for the default of its kind")]
    """Whether it completes only after its result is requested; None = True for a Branch, False for a Worker.
    Without a request it completes when its time to live or the tree ends."""


class MapOptions(_SharedChildOptions, total=False):
    """Settings of several children, one for each task."""

    concurrency: Positive
    """Maximum children at a time, 8 by default; the tree's ``max_children`` applies too."""
    on_error: Annotated[OnChildError, Choice()]
    """``return``, the default, returns failed results like others; ``raise`` does so too, and raises the
    first failure, in the order of the tasks, once all have ended; ``first`` cancels the others at the first
    failure and raises it."""
    progress: Toggle
    """Whether a bar shows how many have ended: in a notebook's cell, or on a terminal."""
    labels: Annotated[Sequence[Text] | None, Parts("a list with one text for each task, or None")]
    """Their names, one for each task; None = no names."""
    ttl_s: Annotated[
        Lifetime | Annotated[Sequence[Lifetime], Parts("seconds")],
        Give("seconds above 0, or a list with one such number for each task, or None for the default"),
    ]
    """Time to live in seconds, from the first adoption: one for all, or one for each task; None = the default
    of the kind."""
