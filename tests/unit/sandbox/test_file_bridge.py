"""Files between a workspace and a container: a stranger's archive is bounded while it is read."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError
from sessiontree.sandbox.containers import file_bridge
from sessiontree.sandbox.containers.engine import ask_engine
from sessiontree.sandbox.containers.file_bridge import FileBridge
from sessiontree.workspace.reader import WorkspaceReader
from sessiontree.workspace.writer import WorkspaceWriter


def make_archive(*members: tuple[str, bytes]) -> bytes:
    """Return an archive of files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), 1
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def make_sparse_archive(name: str, size: int) -> bytes:
    """Return a short archive of a file that is nothing but a hole."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("hole")
        member.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.name": name,
            "GNU.sparse.realsize": str(size),
        }
        data = b"0\n".ljust(512, b"\0")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def make_engine(folder: Path, answer: str) -> str:
    """Return an engine's program that answers each question by a line of shell."""
    program = folder / "engine"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o700)
    return str(program)


def make_bridge(folder: Path, answer: str) -> FileBridge:
    """Return a bridge of an empty workspace."""
    root = folder / "workspace"
    root.mkdir()
    program = make_engine(folder, answer)
    return FileBridge(program, "box", "/work", WorkspaceReader(root), WorkspaceWriter(root))


async def test_what_a_command_wrote_comes_back(tmp_path: Path) -> None:
    """A file is written; a path that leads out is left out."""
    (tmp_path / "files.tar").write_bytes(make_archive(("a.txt", b"one"), ("../b.txt", b"two")))
    bridge = make_bridge(tmp_path, f"cat >/dev/null; cat {tmp_path}/files.tar")
    bridge._known = {}
    assert await bridge.copy_out() == ()
    assert [path.name for path in (tmp_path / "workspace").iterdir()] == ["a.txt"]


@pytest.mark.parametrize("answer", ["exec yes", "exec cat /dev/zero"])
async def test_archive_without_an_end_is_refused_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """A container's files may be larger than this machine's memory; the engine's program is ended."""
    monkeypatch.setattr(file_bridge, "MAX_BYTES", 1_000_000)
    bridge = make_bridge(tmp_path, answer)
    with pytest.raises(ExecutionError, match="more than 1000000 bytes"):
        await bridge.copy_in()


async def test_hole_that_is_longer_than_the_archive_is_refused(tmp_path: Path) -> None:
    """Read, it would fill the memory with nothing; the files before it are not written, either."""
    data = make_archive(("a.txt", b"one"))[:1024] + make_sparse_archive("hole", 2**50)
    (tmp_path / "files.tar").write_bytes(data)
    bridge = make_bridge(tmp_path, f"cat {tmp_path}/files.tar")
    bridge._known = {}
    with pytest.raises(ExecutionError, match=f"{2**50 + 3} bytes"):
        await bridge.copy_out()
    assert list((tmp_path / "workspace").iterdir()) == []


async def test_file_that_grows_while_it_is_packed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was short when the workspace was looked at."""
    bridge = make_bridge(tmp_path, "cat >/dev/null")
    file = tmp_path / "workspace" / "log"
    file.write_bytes(b"short")
    look = FileBridge._look

    def look_before(self: FileBridge) -> dict[str, tuple[int, int]]:
        found = look(self)
        file.write_bytes(b"x" * 2_000)
        return found

    monkeypatch.setattr(FileBridge, "_look", look_before)
    monkeypatch.setattr(file_bridge, "MAX_BYTES", 1_000)
    bridge._known = {}
    with pytest.raises(ExecutionError, match="more than 1000 bytes"):
        await bridge.copy_in()


async def test_engine_is_given_what_it_reads_and_says_what_went_wrong(tmp_path: Path) -> None:
    """Its output and its errors are read at once. It may end without having read its input."""
    program = make_engine(tmp_path, 'cat; head -c 300000 /dev/zero >&2; echo "the end" >&2; exit 3')
    answer = await ask_engine(program, [], data=b"in" * 100_000)
    assert (answer.code, answer.output, answer.said[-7:]) == (3, b"in" * 100_000, "the end")
    deaf = make_engine(tmp_path, "exec echo out")
    assert (await ask_engine(deaf, [], data=b"x" * 2**20)).output == b"out\n"
    endless = await ask_engine(make_engine(tmp_path, "exec yes"), [], most_bytes=10)
    assert (endless.is_cut, endless.code, answer.is_cut) == (True, -9, False)
