"""The reader of workspace and skills: one place for each, and nothing in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.contracts.tools.skills import Skill
from sessiontree.workspace import SkillReader, WorkspaceReader


@pytest.fixture
def reader(tmp_path: Path) -> SkillReader:
    """A reader over a workspace and two skills."""
    for folder in ("ground/skills/pdf", "owner/pdf/notes", "owner/csv"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "ground/skills/pdf/SKILL.md").write_text("of the workspace")
    (tmp_path / "owner/pdf/SKILL.md").write_text("of the owner")
    (tmp_path / "owner/pdf/notes/a.md").write_text("a")
    (tmp_path / "owner/pdf/out").symlink_to("../csv")
    skills = {name: Skill(name, "x", str(tmp_path / "owner" / name)) for name in ("pdf", "csv")}
    return SkillReader(WorkspaceReader(tmp_path / "ground"), skills)


def read(reader: SkillReader, path: str) -> str:
    """Return a file's text."""
    with reader.open(path) as stream:
        return stream.read().decode()


def test_skill_paths_lead_to_the_owner_and_all_others_to_the_workspace(reader: SkillReader) -> None:
    """A relative path is the workspace's, whatever it is called."""
    assert read(reader, "/skills/pdf/SKILL.md") == "of the owner"
    assert read(reader, "/skills/./csv/../pdf//SKILL.md") == "of the owner"
    assert read(reader, "skills/pdf/SKILL.md") == "of the workspace"
    assert [entry.path for entry in reader.walk()] == ["skills/pdf/SKILL.md"]


def test_skill_entries_have_the_paths_by_which_they_are_read(reader: SkillReader) -> None:
    """Every entry of a list or a walk can be read again by its path."""
    assert [entry.path for entry in reader.list("/skills")] == ["/skills/csv", "/skills/pdf"]
    assert reader.stat("/skills").type == reader.stat("/skills/pdf/").type == "directory"
    assert [entry.path for entry in reader.list("/skills/pdf")] == [
        "/skills/pdf/SKILL.md",
        "/skills/pdf/notes",
        "/skills/pdf/out",
    ]
    walked = [entry for entry in reader.walk("/skills") if entry.type == "file"]
    assert [read(reader, entry.path) for entry in walked] == ["of the owner", "a"]
    assert reader.stat("/skills/pdf/notes/a.md").path == "/skills/pdf/notes/a.md"


@pytest.mark.parametrize("path", ["/skills/pdf/out/x", "/skills/../etc/passwd", "/skillset", "//skills/pdf"])
def test_skill_paths_lead_nowhere_else(reader: SkillReader, path: str) -> None:
    """Neither links nor spelling reach another place."""
    with pytest.raises((PermissionDenied, ExecutionError), match="outside"):
        reader.open(path)


def test_unknown_and_lost_skills_are_named(reader: SkillReader, tmp_path: Path) -> None:
    """A skill that the session does not hold, and one whose folder is gone, are errors of the call."""
    with pytest.raises(ExecutionError, match="no skill is named 'pfd'; did you mean 'pdf'"):
        reader.open("/skills/pfd/SKILL.md")
    (tmp_path / "owner/csv").rmdir()
    with pytest.raises(ExecutionError, match="the skill's folder can't be read"):
        reader.list("/skills/csv")
