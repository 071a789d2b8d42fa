"""The package's modules: what they import, and when."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import django_zrank
from tests.without_parts.parts import PARTS

ROOT = Path(django_zrank.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
    if "migrations" not in path.parts
}

DEFERRED = {
    # Models and signals can't be loaded before Django's registry of apps is full.
    ("django_zrank.apps", "django_zrank.checks"),
    ("django_zrank.apps", "django_zrank.sync.signal_handlers"),
    ("django_zrank.apps", "django_zrank.capture.migrating"),
    ("django_zrank.apps", "django_zrank.capture.triggers"),
    # A declaration is below what is done with it.
    ("django_zrank.erase", "django_zrank.erase.erasure"),
    ("django_zrank.idle.touching", "django_zrank.idle.seeing"),
    ("django_zrank.write_behind.changing", "django_zrank.write_behind.waking"),
}
"""Imports within functions: (module, what it imports)."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def statements(tree: ast.AST) -> list[ast.AST]:
    """All statements below, those of functions too: nothing that is looked for here stands within expressions."""
    found = [tree]
    for node in found:
        found += [below for below in ast.iter_child_nodes(node) if not isinstance(below, ast.expr)]
    return found


def imports(module: str, nodes: Iterator[ast.AST] | list[ast.AST]) -> Iterator[str]:
    """The modules of the package that these nodes import."""
    is_package = MODULES[module].name == "__init__.py"
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            base = ".".join(parts[: len(parts) - node.level + is_package]) if node.level else ""
            source = ".".join(filter(None, (base, node.module)))
            for alias in node.names:
                name = f"{source}.{alias.name}"
                found = name if name in MODULES else source
                if found in MODULES:
                    yield found
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)


def at_import(tree: ast.AST, *, types: bool = False) -> Iterator[ast.AST]:
    """The nodes that run when a module is imported; with ``types``, also those that only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr)):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types:
            continue
        yield node
        yield from at_import(node, types=types)


@cache
def imported(module: str, *, types: bool = False) -> set[str]:
    """The modules of the package that a module imports when it is imported itself; with ``types``, for types too."""
    return set(imports(module, at_import(parsed(MODULES[module]), types=types)))


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: imported(module) - {module} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(reversed(error.args[1]))}")


def test_imports_stand_at_the_top_of_their_modules() -> None:
    deferred = {
        (module, source)
        for module, path in MODULES.items()
        for function in statements(parsed(path))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for source in imports(module, statements(function))
    }
    assert deferred == {
        pair for pair in DEFERRED if MODULES.keys() >= {*pair}
    }  # a part may have been deleted


def test_a_declaration_loads_no_redis() -> None:
    code = (
        "import sys; from django_zrank import RankIndex, register\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('redis', 'django_redis')])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent)
    assert (loaded.stdout, loaded.stderr) == ("[]\n", "")


LAYERS = [
    "exceptions signals conf recent methods pool models embedded transactions redis.isolation redis.scripts redis.keys",
    "iteration codec members declaration shards.names shards.declaration",
    "queries combined",
    "redis store extension builds dense",
    (
        "redis.verbs entries recommendations ranking scores registry index "
        "erase groups idle.awake idle.declaration idle.touching remember shown statistics windows.lookup "
        "write_behind.changes write_behind.changing write_behind.column write_behind.conf write_behind.declaration "
        "write_behind.keys"
    ),
    "capture",
    "sync",
    "checks",
    (
        "combined.extension erase.erasure groups.extension idle jobs remember.extension shards shown.checks "
        "shown.extension sql replicas windows write_behind"
    ),
    "cluster rest_framework testing management health metrics admin apps pytest_plugin",
]
"""The layers, from the bottom: each imports nothing of the package, not even types, but what is before or beside it. A
package contains its modules but for those that are named themselves."""

HEIGHTS = {f"django_zrank.{name}": height for height, layer in enumerate(LAYERS) for name in layer.split()}


def height_of(module: str) -> int:
    name = module
    while name and name not in HEIGHTS:
        name = name.rpartition(".")[0]
    assert name, f"{module} is in no layer: add it to LAYERS, and to the table in docs/design.md"
    return HEIGHTS[name]


def test_rooms_import_one_way() -> None:
    modules = MODULES.keys() - {"django_zrank"}
    upwards = {
        (module, source)
        for module in modules
        for source in imported(module, types=True)
        if source == "django_zrank" or height_of(source) > height_of(module)
    }
    assert not upwards


NAMESAKES = {
    "Command": "Django's name of a management command",
    "Meta": "Django's name of a model's options",
    "Kind": "a kind of values; of jobs, within their model as Django names choices",
    "Ranking": "members, best first; the admin's proxy model gives permissions and pages their names",
}
"""Names of several classes, with the reason."""


def test_a_class_has_a_name_of_its_own() -> None:
    nodes = [node for path in MODULES.values() for node in statements(parsed(path))]
    classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    aliases = [
        ast.unparse(node.targets[0])
        for node in nodes
        if isinstance(node, ast.Assign) and re.match(r"[A-Z]\w* = tuple\[", ast.unparse(node))
    ]
    several = {name for name, count in Counter(classes + aliases).items() if count > 1}
    assert several <= {*NAMESAKES}
    assert several == {*NAMESAKES} or not all(part.is_there for part in PARTS.values())


OF_PARTS = {
    module: name
    for name, part in PARTS.items()
    for file in part.files
    for module, path in MODULES.items()
    if path.is_relative_to(ROOT.parent / file)
}
"""The modules that a part brings, with its name."""

NAMED = {
    ("django_zrank.models", "write_behind"): "one row is locked, and changed, by a flush and by a new term",
}
"""Where code of the kernel still names a part, with the reason."""


def kernel_of(path: Path) -> ast.Module:
    """The code of a module without docstrings and without the lines of the list of parts."""
    text = path.read_text()
    for part in PARTS.values():
        for file, listed in part.lines:
            if path == ROOT.parent / file:
                text = "".join(line for line in text.splitlines(keepends=True) if listed not in line)
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name, body in ast.iter_fields(node):
            if isinstance(body, list):
                left = [
                    one
                    for one in body
                    if not (isinstance(one, ast.Expr) and isinstance(getattr(one.value, "value", None), str))
                ]
                setattr(node, name, left)
    return tree


def test_the_kernel_imports_no_part() -> None:
    """Only the list does. Nor does a part import another one, but what it needs."""
    found = {
        (module, source)
        for module, path in MODULES.items()
        for source in imports(module, statements(kernel_of(path)))
        if source in OF_PARTS
        and (
            module not in OF_PARTS
            or OF_PARTS[source] not in {OF_PARTS[module], *PARTS[OF_PARTS[module]].needs}
        )
    }
    assert not found


def test_the_kernel_names_no_part() -> None:
    texts = {
        module: f"{module}\n{ast.unparse(kernel_of(path))}"
        for module, path in MODULES.items()
        if module not in OF_PARTS
    }
    found = {
        (module, name)
        for module, text in texts.items()
        for name, part in PARTS.items()
        if re.search(part.names, text)
    }
    assert found == {*NAMED}


def test_the_scripts_of_the_kernel_name_no_part() -> None:
    found = {
        (path.stem, name)
        for path in ROOT.glob("lua/**/*.lua")
        for name, part in PARTS.items()
        if re.search(part.names, re.sub(r"--.*", "", path.read_text()))
    }
    assert not found


def test_every_room_is_on_the_map() -> None:
    """docs/design.md names every module and every folder of Python at the top of the package."""
    chart = (Path(__file__).parents[1] / "docs/design.md").read_text()
    packages = {name.removeprefix("django_zrank.").partition(".")[0] for name in MODULES if "." in name}
    assert {one for one in packages if f"`{one}.py`" not in chart and f"`{one}/`" not in chart} == set()


def test_tests_from_outside_use_what_the_reference_shows() -> None:
    """Commands, HTTP, SQL, keys in Redis and the public API: these tests survive what is rebuilt inside."""
    tests = Path(__file__).parent
    pages = (path.read_text() for path in (tests.parent / "docs/reference").glob("*.md"))
    named = re.findall(r"^::: ([\w.]+)", "\n".join(pages), re.MULTILINE)
    public = {"django_zrank", *(name if name in MODULES else name.rpartition(".")[0] for name in named)}
    found = {
        (path.name, source)
        for path in sorted((tests / "outside").rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for source in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
        )
        if source.partition(".")[0] == "django_zrank" and source not in public
    }
    assert not found
