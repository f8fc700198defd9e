"""Folder imports: an import leads where its file is, per language, and nowhere where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sessiontree.survey.folder_imports import FolderImports
from sessiontree.survey.import_roots import MAX_ROOTS, import_roots
from sessiontree.survey.languages import language_of
from sessiontree.survey.scan import scan
from sessiontree.survey.tool import survey_file
from sessiontree.survey.whereabouts import Content, Whereabouts, from_here
from sessiontree.workspace import WorkspaceReader

MakeTree = Callable[[Mapping[str, str | bytes]], Path]

PYTHON = [
    *("src/shop/__init__.py", "src/shop/cart/__init__.py", "src/shop/cart/item.py", "src/shop/pay.py"),
    *("tests/test_cart.py", "tests/tools.py", "tests/typing/x.py", "docs/conf.py", "names/space/deep.py"),
    *("shop.txt", ".venv/lib/other/__init__.py", "src/shop/typed.pyi"),
]
JAVASCRIPT = [
    *(
        "web/app.ts",
        "web/view/index.ts",
        "web/view/list.vue",
        "lib/dates.js",
        "lib/empty/x/y.js",
        "web/a.b.js",
    ),
]
C = ["src/a.c", "src/b.h", "src/deep/c.c", "include/lib/d.h", "e.h"]
GO = ["go.mod", "main.go", "store/sql/db.go", "store/readme.md", "tool/go.mod", "tool/run/run.go"]
JAVA = [
    "app/src/main/java/com/x/A.java",
    "app/src/main/java/com/x/y/B.java",
    "app/src/test/java/com/x/ATest.java",
    "util/src/main/kotlin/com/z/C.kt",
]
RUST = [
    *(
        "Cargo.toml",
        "src/main.rs",
        "src/net.rs",
        "src/net/wire.rs",
        "src/disk/mod.rs",
        "src/disk/page/mod.rs",
    ),
]

CASES = [
    (PYTHON, "src/shop/pay.py", "shop.cart", ["src/shop/cart"]),
    (PYTHON, "src/shop/pay.py", "shop.cart.item", ["src/shop/cart"]),
    (PYTHON, "src/shop/pay.py", "shop.cart.item.Item", []),
    (PYTHON, "src/shop/pay.py", "shop.typed", []),
    (PYTHON, "src/shop/pay.py", "cart", []),
    (PYTHON, "src/shop/pay.py", ".cart", ["src/shop/cart"]),
    (PYTHON, "src/shop/cart/item.py", "..", ["src/shop"]),
    (PYTHON, "src/shop/cart/item.py", "..pay", ["src/shop"]),
    (PYTHON, "src/shop/cart/item.py", ".....pay", []),
    (PYTHON, "tests/test_cart.py", "shop.pay", ["src/shop"]),
    (PYTHON, "tests/test_cart.py", "shop", ["src/shop"]),
    (PYTHON, "tests/test_cart.py", "tools", []),
    (PYTHON, "docs/conf.py", "tools", []),
    (PYTHON, "docs/conf.py", "tests.tools", ["tests"]),
    (PYTHON, "docs/conf.py", "names.space.deep", ["names/space"]),
    (PYTHON, "docs/conf.py", "names", []),
    (PYTHON, "tests/test_cart.py", "typing", []),
    (PYTHON, "tests/test_cart.py", "other", []),
    (JAVASCRIPT, "web/app.ts", "./view", ["web/view"]),
    (JAVASCRIPT, "web/app.ts", "./view/list.vue", ["web/view"]),
    (JAVASCRIPT, "web/app.ts", "./view/list", ["web/view"]),
    (JAVASCRIPT, "web/app.ts", "../lib/dates", ["lib"]),
    (JAVASCRIPT, "web/app.ts", "../lib/dates.mjs", ["lib"]),
    (JAVASCRIPT, "web/view/index.ts", "..", ["web"]),
    (JAVASCRIPT, "lib/dates.js", "../web/a.b", ["web"]),
    (JAVASCRIPT, "web/app.ts", "../lib/empty", []),
    (JAVASCRIPT, "web/app.ts", "../../lib/dates", []),
    (JAVASCRIPT, "web/app.ts", "lib/dates", []),
    (C, "src/a.c", "b.h", []),
    (C, "src/deep/c.c", "b.h", ["src"]),
    (C, "src/deep/c.c", "../b.h", ["src"]),
    (C, "src/a.c", "lib/d.h", ["include/lib"]),
    (C, "src/a.c", "e.h", ["."]),
    (C, "src/a.c", "stdio.h", []),
    (GO, "main.go", "shop.example/app/store/sql", ["store/sql"]),
    (GO, "store/sql/db.go", "shop.example/app", ["."]),
    (GO, "main.go", "shop.example/app/store", []),
    (GO, "main.go", "shop.example/apple", []),
    (GO, "main.go", "shop.example/tool/run", ["tool/run"]),
    (GO, "main.go", "fmt", []),
    (JAVA, JAVA[0], "com.x.y.B", ["app/src/main/java/com/x/y"]),
    (JAVA, JAVA[0], "com.x.y.", ["app/src/main/java/com/x/y"]),
    (JAVA, JAVA[0], "com.x.y.B.member", ["app/src/main/java/com/x/y"]),
    (JAVA, JAVA[2], "com.x.y.B", ["app/src/main/java/com/x/y"]),
    (JAVA, JAVA[0], "com.z.C", ["util/src/main/kotlin/com/z"]),
    (JAVA, JAVA[0], "java.util.List", []),
    (RUST, "src/main.rs", "crate::net::wire::Frame", ["src/net"]),
    (RUST, "src/net/wire.rs", "crate::net::Net", ["src"]),
    (RUST, "src/net/wire.rs", "super::Net", ["src"]),
    (RUST, "src/main.rs", "crate::disk::page::Page", ["src/disk/page"]),
    (RUST, "src/disk/page/mod.rs", "super::super::net::wire", ["src/net"]),
    (RUST, "src/disk/mod.rs", "self::page::Page", ["src/disk/page"]),
    (RUST, "src/main.rs", "std::fs", []),
    (PYTHON, "docs/conf.py", "", []),
]


@pytest.mark.parametrize(("files", "path", "reference", "expected"), CASES, ids=range(len(CASES)))
def test_import_leads_to_the_folder_that_holds_it(
    make_tree: MakeTree, files: list[str], path: str, reference: str, expected: list[str]
) -> None:
    """Every rule, and what it must not take for a folder of the tree."""
    texts = {"go.mod": "module shop.example/app\n", "tool/go.mod": "// x\nmodule shop.example/tool\n"}
    root = make_tree({name: texts.get(name, "") for name in files})
    reader = WorkspaceReader(root)
    look = FolderImports(Whereabouts(reader), import_roots(file.path for file in scan(reader).files))
    assert list(look.of(path, language_of(path, "").name, [reference] if reference else [])) == expected


def test_references_of_a_file_are_what_leads_somewhere(make_tree: MakeTree) -> None:
    """Names brought in from a package may be folders; of C only what is quoted counts."""
    root = make_tree(
        {
            "shop/__init__.py": "from shop import cart, pay\nfrom . import cart\nimport os\n",
            "shop/cart/__init__.py": "",
            "shop/pay.py": "def f():\n    from shop.cart import *\n",
            "a.c": '#include "lib/a.h"\n#include <other/b.h>\n// #include "note/c.h"\n',
            "lib/a.h": "",
            "other/b.h": "",
            "note/c.h": "",
        }
    )
    reader = WorkspaceReader(root)
    look = FolderImports(Whereabouts(reader))
    found = {
        file.path: survey_file(reader, file.path, 10_000, look).imports_from for file in scan(reader).files
    }
    assert found == {
        **dict.fromkeys(("lib/a.h", "other/b.h", "note/c.h", "shop/cart/__init__.py"), ()),
        "a.c": ("lib",),
        "shop/__init__.py": ("shop/cart",),
        "shop/pay.py": ("shop/cart",),
    }


def test_what_is_not_surveyed_stands_nowhere(make_tree: MakeTree) -> None:
    """Ignored directories, links, and whatever the reader refuses lead nowhere, without an error."""
    root = make_tree({"a/x.py": "", ".venv/y.py": "", "env/pyvenv.cfg": "", "env/z.py": ""})
    (root / "link").symlink_to(root / "a")
    where = Whereabouts(WorkspaceReader(root))
    assert where.at(".") == Content(frozenset(), frozenset({"a", "env"}))
    assert where.at("a").files == {"x.py"}
    for path in (".venv", "env", "link", "gone", "a/x.py", "a/../a"):
        assert where.at(path) == Content()
    assert where.text_of("gone/go.mod") == ""


@pytest.mark.parametrize(
    ("directory", "path", "expected"),
    [
        ("a/b", "../c", "a/c"),
        ("a/b", "../..", "."),
        ("a", "../../c", None),
        (".", "./c//d", "c/d"),
        (".", "..", None),
        ("a", "", "a"),
    ],
)
def test_relative_paths_lead_from_here(directory: str, path: str, expected: str | None) -> None:
    """Dots are followed, and never out of the tree."""
    assert from_here(directory, path) == expected


def test_import_roots_are_where_outermost_packages_stand() -> None:
    """Inner packages are no roots; those with most packages come first, and there are not too many."""
    paths = [
        "lib/a/__init__.py",
        "lib/b/__init__.py",
        "lib/b/c/__init__.py",
        "src/d/__init__.py",
        "__init__.py",
    ]
    assert import_roots(paths) == ("lib", "src")
    assert import_roots(["x/include/y/z.h", "m/go.mod", "go.mod"]) == (".", "m", "x/include")
    many = [f"{number:03}/p/__init__.py" for number in range(100)]
    assert import_roots(many) == tuple(f"{number:03}" for number in range(MAX_ROOTS))
    assert import_roots([]) == ()
