"""Peers: the same user, no more confined than the runtime, or root; everybody else is refused."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from sessiontree import SessionTree
from sessiontree.control.peer import Peer, PeerConfinement, explain_refusal, identify_peer, read_confinement
from sessiontree.control.protocol import PROTOCOL

FREE = PeerConfinement(0, no_new_rights=False)
FILTERED = PeerConfinement(1, no_new_rights=False)
BOUND = PeerConfinement(0, no_new_rights=True)
CONTAINER = PeerConfinement(1, no_new_rights=True)

NOBODY = 65534
KNOCK = """
import ctypes, os, socket, sys
os.fchdir(int(sys.argv[1]))
if sys.argv[2] == "confined":
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
if sys.argv[2] == "somebody else":
    os.setgroups([])
    os.setgid(int(sys.argv[3]))
    os.setuid(int(sys.argv[3]))
line = socket.socket(socket.AF_UNIX)
line.connect("control")
try:
    line.sendall(b'{"id":1,"ask":"open_trees"}\\n')
except BrokenPipeError:  # hung up on already; what was said before is still there
    pass
with line.makefile("rb") as heard:
    for _ in range(2):
        sys.stdout.buffer.write(heard.readline())
"""
"""Knocks at the control socket of a directory and prints the first two things it learns."""


@pytest.mark.parametrize(
    ("peer", "own", "theirs", "reason"),
    [
        (Peer(7, 1000), FREE, FREE, None),
        (Peer(7, 1000), CONTAINER, CONTAINER, None),
        (Peer(7, 1000), CONTAINER, FREE, None),
        (Peer(7, 0), FREE, None, None),
        (Peer(7, 0), FREE, CONTAINER, None),
        (Peer(7, 1001), FREE, FREE, "runs as user 1001"),
        (Peer(7, 1000), FREE, FILTERED, "is confined"),
        (Peer(7, 1000), FREE, BOUND, "is confined"),
        (Peer(7, 1000), BOUND, CONTAINER, "is confined"),
        (Peer(7, 1000), FREE, None, "can't be seen"),
        (Peer(7, 1000), None, FREE, "can't be seen"),
    ],
)
def test_who_is_an_owner(
    peer: Peer, own: PeerConfinement | None, theirs: PeerConfinement | None, reason: str | None
) -> None:
    """A runtime of user 1000 lets in that user and root; no process confined like its Workers' hosts."""
    refused = explain_refusal(peer, 1000, own, theirs)
    if reason is None:
        assert refused is None
    else:
        assert reason in (refused or "")


def test_peer_is_as_the_system_says() -> None:
    """Process and user come from the kernel, not from what a peer says."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert identify_peer(ours) == Peer(os.getpid(), os.geteuid())
    assert str(Peer(7, 0)) == "person (uid 0, pid 7)"


def test_confinement_of_nobody_is_not_known() -> None:
    """Processes that can't be seen have none."""
    assert read_confinement() == read_confinement(os.getpid())
    assert read_confinement() is not None
    assert read_confinement(0) is None
    assert read_confinement(2**22 + 1) is None


async def connect_control_socket(state_dir: Path, how: str) -> list[dict[str, Any]]:
    """Have another process connect_control_socket at a control socket; return what it learns."""
    directory = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", KNOCK, str(directory), how, str(NOBODY),
            stdout=PIPE, pass_fds=(directory,),
        )  # fmt: skip
        out, _ = await program.communicate()
    finally:
        os.close(directory)
    return [json.loads(line) for line in out.splitlines()]


async def test_process_of_its_user_is_heard(tree: SessionTree) -> None:
    """It is greeted and answered."""
    greeting, answer = await connect_control_socket(tree.state_dir, "free")
    assert (greeting["protocol"], greeting["pid"]) == (PROTOCOL, os.getpid())
    assert answer == {"id": 1, "items": [tree.tree_id]}


@pytest.mark.covers("A13", "REL-L13", "DOR2")
async def test_confined_process_is_no_owner(tree: SessionTree) -> None:
    """What a Worker's host can reach, it cannot use: it would answer its own requests."""
    (refusal,) = await connect_control_socket(tree.state_dir, "confined")
    assert refusal["error"]["type"] == "PermissionDenied"
    assert "is confined and the runtime is not" in refusal["error"]["fields"][1]
    assert await tree.main.send("x") == "heard: x"


@pytest.mark.covers("DOR2")
async def test_another_user_is_no_owner(tree: SessionTree) -> None:
    """File modes keep others out; where somebody loosened them, the peer's user does."""
    if os.geteuid() != 0:
        # only root can become somebody else; so the runtime is, here
        assert explain_refusal(Peer(os.getpid(), os.geteuid()), os.geteuid() + 1, FREE, FREE) is not None
        return
    tree.state_dir.chmod(0o755)
    assert await connect_control_socket(tree.state_dir, "somebody else") == []
    (tree.state_dir / "control").chmod(0o666)
    (refusal,) = await connect_control_socket(tree.state_dir, "somebody else")
    assert f"runs as user {NOBODY}" in refusal["error"]["fields"][1]
    assert await tree.main.send("x") == "heard: x"
