"""Manifests: what a project says of itself, by kind of manifest; broken ones say nothing."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.survey.source.manifests import parse_manifest, summarize_readme

PYPROJECT = """
[build-system]
requires = ["hatchling"]
[project]
name = "thing"
description = "Does it."
dependencies = ["ray>=2", "httpx[http2] ; python_version > '3'"]
scripts = { thing = "thing.cli:main" }
optional-dependencies = { dev = ["pytest>=8"] }
[tool.pytest.ini_options]
"""
PACKAGE = """{"name": "thing", "description": "Does it.", "bin": "cli.js", "main": "index.js",
"packageManager": "pnpm@9", "scripts": {"test": "vitest"}, "dependencies": {"a": "1"},
"devDependencies": {"b": "1"}}"""
CARGO = """
[package]
name = "thing"
description = "Does it."
[[bin]]
name = "t"
path = "src/t.rs"
[dependencies]
a = "1"
[dev-dependencies]
b = "1"
"""
GO = "module example.com/thing\n\nrequire (\n\texample.com/a v1.0.0\n\texample.com/b v1 // indirect\n)\n"
POM = (
    "<project><parent><artifactId>other</artifactId></parent><artifactId>thing</artifactId>"
    "<description>Does it.</description><dependencies><dependency>\n<groupId>g</groupId>"
    "<artifactId>a</artifactId></dependency></dependencies></project>"
)
WORKFLOW = (
    "jobs:\n  t:\n    steps:\n    - run: make lint\n    - run: |\n        make test\n        # not this\n"
)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            "pyproject.toml",
            PYPROJECT,
            ("thing", "thing = thing.cli:main", "python -m build|pytest", "ray|httpx", "pytest"),
        ),
        (
            "a/package.json",
            PACKAGE,
            ("thing", "thing = cli.js|import = index.js", "pnpm run test: vitest", "a", "b"),
        ),
        ("Cargo.toml", CARGO, ("thing", "t = src/t.rs", "cargo build|cargo test", "a", "b")),
        ("go.mod", GO, ("example.com/thing", "", "go build ./...|go test ./...", "example.com/a", "")),
        ("pom.xml", POM, ("thing", "", "mvn package|mvn test", "a", "")),
        ("requirements.txt", "# x\na==1\n-r b.txt\n", ("", "", "", "a", "")),
        (
            "build.gradle.kts",
            'implementation("g:a:1")\ntestImplementation("g:b:1")\n',
            ("", "", "gradle build|gradle test", "g:a", "g:b"),
        ),
        (
            "Makefile",
            "test: x ## run\nlint:\nA := b\n.PHONY: x\n",
            ("", "", "make test: run|make lint", "", ""),
        ),
        (".github/workflows/ci.yml", WORKFLOW, ("", "", "make lint|make test", "", "")),
    ],
)
def test_project_of_reads_each_manifest(path: str, text: str, expected: tuple[str, ...]) -> None:
    """Name, starts, commands, and what it needs to run and to be developed."""
    found = parse_manifest(path, text)
    assert found is not None
    lists = ("|".join(one) for one in (found.starts, found.commands, found.needs, found.needs_to_develop))
    assert (found.name, *lists) == expected
    assert found.path == path


def test_project_of_other_files_is_nothing() -> None:
    """Names that are no manifest, and manifests that can't be read."""
    assert parse_manifest("a.py", "x") is None
    assert parse_manifest("package.json", "{") is None
    assert parse_manifest("package.json", "[]") is None
    assert parse_manifest("pyproject.toml", "[project]\ndependencies = 1\n") is None
    assert parse_manifest("src/workflows/ci.yml", WORKFLOW) is None


@given(
    st.sampled_from(["package.json", "pyproject.toml", "go.mod", "Makefile", "pom.xml"]),
    st.text(max_size=300),
)
def test_project_of_never_raises(path: str, text: str) -> None:
    """Any text is a manifest or none."""
    parse_manifest(path, text)


@pytest.mark.parametrize(
    ("text", "about"),
    [
        (
            "# Title\n\n[![badge](x)](y)\n\nDoes one thing *well* for [you](there).\n",
            "Does one thing well for you.",
        ),
        ("Title\n=====\n\nDoes one thing well.\n\nMore.\n", "Does one thing well."),
        ("<!-- hidden words that nobody reads -->\n# T\n\n- a list of some things\n", ""),
    ],
)
def test_about_readme_is_the_first_paragraph_of_words(text: str, about: str) -> None:
    """Headings, badges, lists and comments say nothing."""
    assert summarize_readme(text) == about


@pytest.mark.parametrize("piece", ["[", "![", "<!--", "<", "](", "`", "#\n", "\n \n", "---\n", "[a](", "\n"])
def test_hostile_texts_are_read_once(piece: str) -> None:
    """A text of openings that nothing closes costs milliseconds, where each would be searched to the end."""
    text = piece * (590_000 // len(piece))
    began = time.process_time()
    summarize_readme(text)
    parse_manifest(".github/workflows/a.yml", text)
    parse_manifest("Makefile", text)
    assert time.process_time() - began < 5
