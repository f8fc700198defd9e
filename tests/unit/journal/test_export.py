"""Exports: the longest whole beginning of one loads, whatever was cut or changed."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessiontree.contracts.errors import JournalCorrupt, JournalTooNew
from sessiontree.journal.export import Export, Manifest, load_export, open_private_file
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord

if TYPE_CHECKING:
    from tests.unit.journal.conftest import Written

Load: TypeAlias = Callable[[list[str]], Export]


def load_believing(lines: list[str]) -> Export:
    """A broken loader: it takes every line that is JSON."""
    records: list[JournalRecord] = []
    for line in lines[1:]:
        try:
            item = json.loads(line)
            text = json.dumps(item["fact"], separators=(",", ":"))
            records.append(JournalRecord(item["seq"], item["session"], item["cause"], item["at_ms"], text))
        except (ValueError, KeyError):
            break
    return Export(Manifest("tree", 0, {}), tuple(records), len(records) + 2)


def export_text(state: Path) -> str:
    """Return the tree of a state directory as NDJSON."""
    out = io.StringIO()
    with Journal.open(state, read_only=True) as journal:
        journal.export("tree", out)
    return out.getvalue()


@pytest.fixture(scope="module")
def exported(written: Written, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The written tree as an export."""
    return export_text(written.copy_to(tmp_path_factory.mktemp("export"))).encode("ascii")


def damaged_export_loads_prefix(written: Written, data: bytes, good_bytes: int, load: Load) -> None:
    """Property: exactly the lines that lie within the first bytes load, and where it stops is said."""
    whole_lines = data[:good_bytes].count(b"\n")
    found = load(io.StringIO(data.decode("utf-8", "replace"), newline="\n").readlines())
    assert list(found.records) == list(written.records[: max(0, whole_lines - 1)])
    assert not found.complete
    assert found.stopped_at_line == whole_lines + 1
    assert (found.manifest is None) == (whole_lines == 0)


@given(share=st.floats(0, 1, exclude_max=True))
@example(share=0.0)
def test_export_cut_at_any_byte_loads_its_whole_lines(
    written: Written, exported: bytes, share: float
) -> None:
    """REL-S39: a cut, at a line's end too, is noticed, and what comes before it loads."""
    cut = int(share * len(exported))
    damaged_export_loads_prefix(written, exported[:cut], cut, load_export)


@given(share=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
@example(share=0.0, mask=1)
def test_export_flipped_at_any_byte_loads_the_lines_before(
    written: Written, exported: bytes, share: float, mask: int
) -> None:
    """REL-S39: a changed byte is noticed at its line."""
    place = int(share * len(exported))
    data = exported[:place] + bytes([exported[place] ^ mask]) + exported[place + 1 :]
    damaged_export_loads_prefix(written, data, place, load_export)


@given(line=st.integers(0, 48))
def test_export_without_one_line_loads_the_lines_before(written: Written, exported: bytes, line: int) -> None:
    """REL-S39: a missing line is noticed where it should stand."""
    lines = exported.splitlines(keepends=True)
    place = sum(len(text) for text in lines[:line])
    data = b"".join(lines[:line] + lines[line + 1 :])
    damaged_export_loads_prefix(written, data, place, load_export)


def test_export_properties_notice_a_believing_loader(written: Written, exported: bytes) -> None:
    """The property fails on a loader that does not look at the hashes."""
    place = exported.index(b'"n":7')
    data = exported[: place + 4] + b"8" + exported[place + 5 :]
    with pytest.raises(AssertionError):
        damaged_export_loads_prefix(written, data, place, load_believing)
    with pytest.raises(AssertionError):
        damaged_export_loads_prefix(written, exported[:place], place, lambda lines: load_export(lines[:-3]))


def test_whole_export_is_the_whole_tree(written: Written, exported: bytes) -> None:
    """An export holds row 0 and every record, long texts included, and says it is complete."""
    found = load_export(exported.decode("ascii").splitlines(keepends=True))
    assert found.complete
    assert found.records == written.records
    assert found.manifest is not None
    assert (found.manifest.tree_id, found.manifest.row0) == ("tree", {"model": "scripted"})
    assert found.manifest.created_ms > 0
    for line in exported.splitlines():
        assert json.loads(line)["hash"]


def test_export_that_goes_on_after_its_end_is_not_whole(written: Written, exported: bytes) -> None:
    """A second tree in the file is not left out in silence: the line after the end is named."""
    lines = exported.decode("ascii").splitlines(keepends=True)
    for more in (lines, ["\n"]):
        found = load_export([*lines, *more])
        assert (found.complete, found.stopped_at_line) == (False, len(lines) + 1)
        assert found.records == written.records


def test_export_of_a_damaged_tree_says_so(written: Written, tmp_path: Path) -> None:
    """What is left of a damaged tree can be exported; the file tells that it is not all."""
    state = written.copy_to(tmp_path)
    with closing(sqlite3.connect(state / "journal.db")) as connection:
        connection.execute("DELETE FROM segments WHERE n = 3")
        connection.commit()
    found = load_export(export_text(state).splitlines(keepends=True))
    assert found.records == written.records[:8]
    assert (found.complete, found.stopped_at_line) == (False, None)
    assert found.damage == "segment 3 is missing"
    with closing(sqlite3.connect(state / "journal.db")) as connection:
        connection.execute("UPDATE trees SET row0 = '{}'")
        connection.commit()
    with pytest.raises(JournalCorrupt, match="row 0"):
        export_text(state)


def sealed(text: str) -> str:
    """Return a first line with a right hash."""
    return f'{text},"hash":"{hashlib.sha256(text.encode("ascii")).hexdigest()}"}}\n'


def test_export_of_a_later_release_is_too_new() -> None:
    """A version this release does not know is not guessed at."""
    with pytest.raises(JournalTooNew, match="version 2"):
        load_export([sealed('{"format":"sessiontree-journal","version":2')])


HEAD = '{"format":"sessiontree-journal","version":1'


@pytest.mark.parametrize(
    "text",
    [
        *('{"format":"other","version":1', HEAD, "[1", '{"version":1', '{"version":' + "9" * 5_000),
        *(HEAD + ',"row0":' + "[" * 100_000, HEAD + ',"row0":{"a":' + "[" * 900 + "]" * 900 + "}"),
        HEAD + ',"tree":"tree","created_ms":1,"row0":{"a":NaN}',
        HEAD + f',"tree":"tree","created_ms":{2**63},"row0":{{}}',
    ],
)
def test_whole_line_that_is_no_manifest_is_refused(text: str) -> None:
    """A right hash does not make a file an export."""
    found = load_export([sealed(text)])
    assert (found.manifest, found.stopped_at_line) == (None, 1)
    assert found.reason


@pytest.mark.parametrize("at_ms", [2**63, -(2**63)])
def test_time_that_no_journal_can_hold_is_damage(at_ms: int) -> None:
    """It would stop the import in the middle, with an error of the database."""
    lines = [sealed(HEAD + ',"tree":"tree","created_ms":1,"row0":{}')]
    text = f'{{"seq":1,"session":"main","at_ms":{at_ms},"cause":"c","fact":{{}}'
    body = lines[0][: lines[0].index(',"hash"')] + text
    lines.append(f'{text},"hash":"{hashlib.sha256(body.encode("ascii")).hexdigest()}"}}\n')
    found = load_export(lines)
    assert (found.stopped_at_line, found.records) == (2, ())
    assert "no time" in (found.reason or "")


def test_private_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """Only its owner may read it; a failure midway leaves what was there before, and nothing else."""
    path = tmp_path / "tree.ndjson"
    path.write_text("earlier")
    path.chmod(0o644)
    with pytest.raises(RuntimeError), open_private_file(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("tree.ndjson", "earlier")]
    with open_private_file(path) as file:
        file.write(b"whole")
        assert path.read_text() == "earlier"
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("tree.ndjson", "whole")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["pipe", "directory", "link to a pipe"])
def test_private_file_replaces_no_pipe_and_no_directory(tmp_path: Path, kind: str) -> None:
    """A device or pipe that is named stays what it is, and it is said what to do instead."""
    path = tmp_path / "place"
    if kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(tmp_path / "pipe")
        path = tmp_path / "pipe" if kind == "pipe" else path
        if kind != "pipe":
            path.symlink_to("pipe")
    before = [(each.name, each.lstat().st_ino) for each in tmp_path.iterdir()]
    with (
        pytest.raises(FileExistsError, match=r"not a regular file, .* or - for the output"),
        open_private_file(path),
    ):
        pytest.fail("it was opened")
    assert [(each.name, each.lstat().st_ino) for each in tmp_path.iterdir()] == before


def test_private_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The error has the path that was given and says what to do; nothing is made."""
    path = tmp_path / "missing" / "tree.ndjson"
    with (
        pytest.raises(FileNotFoundError, match="name a file in a directory that exists") as caught,
        open_private_file(path),
    ):
        pytest.fail("it was opened")
    assert caught.value.filename == str(path)
    assert not any(tmp_path.iterdir())


def test_private_file_at_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    """The link is named, and stays."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="name another file") as caught, open_private_file(tmp_path / "loop"):
        pytest.fail("it was opened")
    assert caught.value.errno == errno.ELOOP
    assert (tmp_path / "loop").is_symlink()


def test_private_file_goes_where_a_link_leads(tmp_path: Path) -> None:
    """The link stays one."""
    (tmp_path / "link").symlink_to("target")
    with open_private_file(tmp_path / "link") as file:
        file.write(b"whole")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "whole"
