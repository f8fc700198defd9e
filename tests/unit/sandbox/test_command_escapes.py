"""Every way out of a command's sandbox is closed, as root and as nobody; with a part left out some open."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.escape_trials.attempts import ATTEMPTS, SUCCEEDED
from benchmarks.escape_trials.outside import outside
from benchmarks.escape_trials.trial import try_all
from benchmarks.escape_trials.unprivileged import NOBODY, run_as_nobody, words_as_nobody
from sessiontree.contracts.handles.ports import Shell
from sessiontree.sandbox import CommandShell
from tests.unit.sandbox import command_shell_fakes as planting
from tests.unit.sandbox.command_shell_fakes import CarelessShell

IS_ROOT = os.geteuid() == 0
USERS = ("root", "nobody") if IS_ROOT else ("self",)
LIMITS = {"processes", "memory_bytes", "file_bytes"}
Made = dict[str, tuple[dict[str, str], list[str]]]


def as_user(user: str) -> tuple[dict[str, str], list[str]]:
    """Make every attempt as a user; return what came of them, and what changed outside."""
    if user == "nobody":
        with outside(NOBODY) as place, words_as_nobody("benchmarks.escape_trials.trial") as words:
            told = json.loads(run_as_nobody(words, json.dumps(place.facts), *ATTEMPTS))
            return told, place.changes()
    return with_shell(CommandShell, *ATTEMPTS)


def with_shell(
    make: Callable[[Path, tuple[Path, ...]], Shell], *names: str
) -> tuple[dict[str, str], list[str]]:
    """Make attempts as this user in a shell; return what came of them, and what changed outside."""
    with outside() as place:
        told = asyncio.run(try_all(make(place.workspace, (place.hidden,)), place.facts, names))
        return told, place.changes()


@pytest.fixture(scope="module")
def made() -> Made:
    """What came of the whole table, by user."""
    return {user: as_user(user) for user in USERS}


@pytest.mark.short(60)
@pytest.mark.covers("REL-L33", "REL-L71", "EXE3")
@pytest.mark.slow
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("name", ATTEMPTS)
def test_no_way_leads_out(made: Made, user: str, name: str) -> None:
    """The kernel refuses, or a limit ends it; a program that failed for another reason proves nothing."""
    told = made[user][0][name]
    assert told != SUCCEEDED
    assert told in LIMITS or (told.startswith("E") and told.isupper()), told


@pytest.mark.covers("EXE1")
@pytest.mark.slow
@pytest.mark.parametrize("user", USERS)
def test_nothing_outside_changes(made: Made, user: str) -> None:
    """Files, settings of the kernel, sockets and processes are as before."""
    assert made[user][1] == []


CARELESS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("landlock", {"plan": planting.without_landlock}, ("write_a_setting", "write_what_runs_on_a_crash")),
    (
        "filter",
        {"plan": planting.without_filter},
        ("make_a_program_of_its_owner", "open_a_program_of_its_group", "start_in_a_user_namespace"),
    ),
    ("limits", {"plan": planting.without_limits}, ("write_a_big_file",)),
    (
        "network",
        {"plan": planting.without_network_rules, "words": planting.with_the_network},
        ("connect_to_loopback", "send_a_datagram"),
    ),
    (
        "socket filter",
        {"plan": planting.without_filter},
        (
            "connect_to_a_socket_file_in_the_workspace",
            "send_a_datagram_to_a_socket_file",
            "send_a_descriptor_to_a_socket_file",
            "send_a_raw_datagram_by_a_message",
            "give_a_datagram_end_a_name",
        ),
    ),
    (
        "hidden launcher",
        {"source": planting.open_to_all},
        ("read_what_the_launcher_was_started_with", "look_from_the_launchers_root"),
    ),
    ("processes", {"words": planting.with_the_processes}, ("see_processes_outside",)),
    ("covers", {"words": planting.without_covers}, ("read_hidden_file", "list_hidden_directory")),
    (
        "protected places",
        {},
        (
            "plant_a_hook",
            "change_git_settings",
            "replace_git_settings",
            "name_git_settings_anew",
            "open_git_settings_by_descriptor",
            "swap_the_hooks",
            "swap_the_repository",
        ),
    ),
    ("pins", {"words": planting.without_pins}, ("uncover_hidden_directory",)),
]


@pytest.mark.covers("REL-L33")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("careless", "names"), [row[1:] for row in CARELESS], ids=[row[0] for row in CARELESS]
)
def test_each_part_left_out_opens_a_way(careless: dict[str, Any], names: tuple[str, ...]) -> None:
    """Planted: the table notices each part that is missing; as root also what root alone may write."""
    told, changes = with_shell(lambda root, hidden: CarelessShell(root, hidden, **careless), *names)
    expected = set(names) if IS_ROOT else set(names) - {"write_a_setting", "write_what_runs_on_a_crash"}
    assert {name for name, outcome in told.items() if outcome == SUCCEEDED} == expected
    speaking = {"connect_to_loopback", "send_a_datagram", "make_a_program_of_its_owner"}
    speaking.add("send_a_datagram_to_a_socket_file")
    if speaking & set(names) or {"uncover_hidden_directory", "plant_a_hook"} & set(names):
        assert changes


@pytest.mark.covers("EXE3")
@pytest.mark.slow
def test_namespaces_alone_close_the_network() -> None:
    """Without the filter and without rules for ports there is still no way to the machine's network."""
    names = ("connect_to_loopback", "connect_outside", "connect_to_an_abstract_socket", "send_a_datagram")
    told, changes = with_shell(
        lambda root, hidden: CarelessShell(root, hidden, plan=planting.without_network_rules), *names
    )
    assert SUCCEEDED not in {told[name] for name in names[:3]}
    assert changes == []
