"""Imports: module names per language, and the packages they belong to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessiontree.survey.finding import FileFinding
from sessiontree.survey.imports import MAX_IMPORTS, package_of

Survey = Callable[[str, str], FileFinding]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            "a.js",
            "import a from 'b'\nimport {\n  c,\n} from \"./d\"\nimport 'e'\nconst f = require('g/h')\n",
            ("b", "./d", "e", "g/h"),
        ),
        (
            "a.ts",
            "export * from '@a/b/c'\nconst x = await import('y')\n// import z from 'z'\n",
            ("@a/b/c", "y"),
        ),
        (
            "a.go",
            'package a\nimport "fmt"\nimport (\n\tx "a/b"\n\t_ "c"\n)\nvar s = `\n\t"no"\n`\n',
            ("fmt", "a/b", "c"),
        ),
        (
            "a.rs",
            "use std::io;\npub use crate::a::B;\nextern crate serde;\n/*\nuse no::no;\n*/\n",
            ("std::io", "crate::a::B", "serde"),
        ),
        ("A.java", "import java.util.List;\nimport static org.a.B.*;\n", ("java.util.List", "org.a.B.")),
        ("a.c", '#include <stdio.h>\n#  include "a/b.h"\n// #include <no.h>\n', ("stdio.h", "a/b.h")),
        (
            "a.cs",
            "using System.Text;\nusing static A.B;\nusing C = D.E;\nusing (var x = y) { }\n",
            ("System.Text", "A.B", "D.E"),
        ),
        ("a.rb", "require 'json'\nrequire_relative \"a/b\"\n", ("json", "a/b")),
        ("a.php", "<?php\nuse A\\B;\nrequire_once 'x.php';\n", ("A\\B", "x.php")),
        ("a.sh", "source ./lib.sh\n. /etc/rc\n# . no\n", ("./lib.sh", "/etc/rc")),
        ("a.kt", "import a.b.C\n", ("a.b.C",)),
        ("a.swift", "@testable import A\nimport class B.C\n", ("A", "B.C")),
        ("a.scss", "@use 'a';\n@import \"b\";\n", ("a", "b")),
        ("a.proto", 'import "a/b.proto";\n', ("a/b.proto",)),
        ("Dockerfile", "FROM python:3.12 AS x\n# FROM no\n", ("python:3.12",)),
        ("a.json", '{"import": "x"}', ()),
    ],
)
def test_modules_are_named_as_written(
    survey_text: Survey, path: str, text: str, expected: tuple[str, ...]
) -> None:
    """Each module once, in order; comments and strings name none."""
    assert survey_text(path, text).imports == expected


def test_a_file_names_a_bounded_number_of_modules(survey_text: Survey) -> None:
    """Generated files with thousands of imports stay small findings, in every language."""
    many = range(2 * MAX_IMPORTS)
    python = survey_text("a.py", "".join(f"import m{number}\n" for number in many))
    script = survey_text("a.js", "".join(f"import 'm{number}'\n" for number in many))
    assert python.imports == script.imports == tuple(f"m{number}" for number in range(MAX_IMPORTS))


@pytest.mark.parametrize(
    ("language", "module", "package"),
    [
        ("Python", "os.path", "os"),
        ("Python", "..a", None),
        ("Python", ".", None),
        ("JavaScript", "./a", None),
        ("JavaScript", "react/jsx", "react"),
        ("TypeScript", "@a/b/c", "@a/b"),
        ("JavaScript", "node:fs", "node:fs"),
        ("JavaScript", "/", None),
        ("Java", "java.util.List", "java.util"),
        ("Rust", "crate::a", None),
        ("Rust", "serde::de", "serde"),
        ("Go", "net/http", "net/http"),
        ("C", "stdio.h", "stdio.h"),
        ("C", "", None),
    ],
)
def test_packages_are_what_people_install(language: str, module: str, package: str | None) -> None:
    """Parts below a package are left out, relative names belong to none."""
    assert package_of(language, module) == package
