"""The control socket's file: nobody else's at any moment, and never in the way of the next."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sessiontree.contracts.errors import JournalError, JournalUnwritable
from sessiontree.control.protocol import SOCKET_NAME, connect_control_socket, open_control_socket
from sessiontree.runtime.transport.socket_files import MAX_ADDRESS_BYTES


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Have files made with this mask meanwhile."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def names_in(state_dir: Path) -> list[str]:
    """Return what is in a state directory."""
    return [path.name for path in state_dir.iterdir()]


def answers(state_dir: Path) -> bool:
    """Whether somebody listens in a state directory."""
    line = asyncio.run(connect_control_socket(state_dir))
    if line is None:
        return False
    line.close()
    return True


@pytest.fixture(params=[10, 300], ids=["short path", "long path"])
def state_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A state directory whose control socket's path fits an address, or does not."""
    place = tmp_path
    while len(str(place)) < request.param:
        place /= "d" * 60
    place.mkdir(parents=True, exist_ok=True)
    assert (len(str(place / SOCKET_NAME)) > MAX_ADDRESS_BYTES) is (request.param == 300)
    return place


@pytest.mark.parametrize("mask", [0, 0o777])
def test_file_is_its_owner_s_whatever_the_mask_says(state_dir: Path, mask: int) -> None:
    """Nobody else may ever open it: its mode comes from the socket, not from a later change."""
    with umask(mask):
        listener = open_control_socket(state_dir)
    try:
        mode = stat.S_IMODE((state_dir / SOCKET_NAME).lstat().st_mode)
        assert mode == 0o600 & ~mask
        assert names_in(state_dir) == [SOCKET_NAME]
    finally:
        listener.close()


def test_mode_is_there_before_the_file_is(tmp_path: Path) -> None:
    """The system makes the file with the unbound socket's mode: it never has another."""
    with umask(0), socket.socket(socket.AF_UNIX) as plain, socket.socket(socket.AF_UNIX) as ours:
        plain.bind(str(tmp_path / "plain"))
        os.fchmod(ours.fileno(), 0o600)
        ours.bind(str(tmp_path / "ours"))
    assert stat.S_IMODE((tmp_path / "plain").lstat().st_mode) == 0o777
    assert stat.S_IMODE((tmp_path / "ours").lstat().st_mode) == 0o600


def test_door_is_found_and_goes_with_its_owner(state_dir: Path) -> None:
    """Nobody is found before and after; nothing is left."""
    assert not answers(state_dir)
    listener = open_control_socket(state_dir)
    assert answers(state_dir)
    listener.close()
    assert not answers(state_dir)
    assert names_in(state_dir) == []


def test_dead_process_s_door_is_replaced(state_dir: Path) -> None:
    """A file nobody listens behind is replaced by the next runtime, a half-made one too."""
    dead = open_control_socket(state_dir)
    dead.listener.close()
    (state_dir / "control.new").touch()
    assert (state_dir / SOCKET_NAME).exists()
    assert not answers(state_dir)
    listener = open_control_socket(state_dir)
    assert answers(state_dir)
    dead.close()
    assert answers(state_dir), "the old control socket took the new one's file away"
    listener.close()


@pytest.mark.parametrize("what", ["nothing", "a file", "no directory"])
def test_where_there_is_no_door_nobody_is_found(tmp_path: Path, what: str) -> None:
    """No socket, something else in its place, and a path through a file are all: nobody."""
    place = tmp_path / "state"
    if what == "a file":
        place.mkdir()
        (place / SOCKET_NAME).touch()
    elif what == "no directory":
        place.touch()
    assert asyncio.run(connect_control_socket(place)) is None


def test_place_that_takes_no_door_is_said_so(tmp_path: Path) -> None:
    """A typed error names the place."""
    with pytest.raises(JournalUnwritable, match="control"):
        open_control_socket(tmp_path / "missing")
    (tmp_path / SOCKET_NAME).mkdir()
    with pytest.raises(JournalUnwritable, match="control"):
        open_control_socket(tmp_path)


def test_loop_of_links_is_a_typed_error(tmp_path: Path) -> None:
    """What the system refuses for another reason is reported, with whose control socket it may be."""
    (tmp_path / SOCKET_NAME).symlink_to(tmp_path / SOCKET_NAME)
    with pytest.raises(JournalError, match="only the user who runs it, or root"):
        asyncio.run(connect_control_socket(tmp_path))
