"""A survey of what is installed: a thousand files by other people and more, and not one that fails."""

from __future__ import annotations

from pathlib import Path

import pydantic
import pytest

from sessiontree.survey.decoding import decode
from sessiontree.survey.entries import entries_of
from sessiontree.survey.finding import FileFinding
from sessiontree.survey.folder_imports import FolderImports
from sessiontree.survey.import_roots import import_roots
from sessiontree.survey.joining import findings_of
from sessiontree.survey.lines import lines_of
from sessiontree.survey.plan import plan
from sessiontree.survey.scan import scan
from sessiontree.survey.tool import survey_file
from sessiontree.survey.whereabouts import Whereabouts
from sessiontree.workspace import WorkspaceReader


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_installed_is_surveyed() -> None:
    """Of every fourth file: no analysis fails, counts agree, nothing is named or cited where it is not."""
    root = Path(pydantic.__file__).parents[1]
    reader = WorkspaceReader(root)
    found = scan(reader)
    look = FolderImports(Whereabouts(reader), import_roots(file.path for file in found.files))
    findings: list[FileFinding] = []
    files = found.files[::4]
    for folder in plan(files):
        for group in folder.groups:
            findings.extend(survey_file(reader, path, 2_000_000, look) for path in group)
    assert len(findings) == len(files) > 1_000
    for finding in findings:
        assert "analysis failed" not in finding.problem, finding
        assert finding.lines == finding.code + finding.comment + finding.blank, finding.path
        assert all(1 <= one.line <= one.end_line <= finding.lines for one in finding.definitions), (
            finding.path
        )
    for file in files[::5]:
        with reader.open(file.path) as opened:
            data = opened.read(2_000_000)
        decoded = decode(data, cut=file.size > len(data))
        lines = [] if decoded is None else lines_of(decoded.text)
        for entry in entries_of(file.path, data, file.size).entries:
            cited = "\n".join(lines[entry.first - 1 : entry.last])
            named = entry.name.split(" / ")[-1].replace(".", " ").split()
            assert entry.kind == "file" or not named or named[-1] in cited, entry
    whole = findings_of(findings)
    assert whole.files == sum(totals.files for totals in whole.folders.values())
