"""Mutants: one statement is left out, or one condition takes a constant's place; in Python and in Lua."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from hashlib import sha1
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple
from unittest import mock

import django_zrank
from django_zrank.redis import scripts
from django_zrank.redis.scripts import Script
from tests.scripts import preceded_scripts, variants

__all__ = ["Mutant", "files_of", "mutants"]

ROOT: Final = Path(django_zrank.__file__).parent

MODULES: Final = {
    "sync.push": None,
    "sync.drain": None,
    "sync.marks": None,
    "write_behind.flush": None,
    "write_behind.store": None,
    "idle.store": None,
    "windows.store": None,
    "store": (
        "Store.beginning_write",
        "Store.applying_changes",
        "Store._pieces",
        "Store._writes",
        "Store.adopt_server",
        "Store.finish_replay",
        "Store.start_rebuild",
        "Store._pack",
        "Store.load_rows",
        "Store.keep_alive",
        "Store.swap_rebuilt",
        "Store.abandon_rebuild",
        "Store.unlink_doomed",
    ),
}
"""The functions whose statements are left out; None for all of a module."""

SCRIPTS: Final = (
    *("take_pending", "confirm_flush", "settle_flush", "reconcile_pending", "drop_pending"),
    *("change_scores", "increment_scores", "lib/writable", "lib/ruled", "lib/held"),
    *("lib/pending", "lib/returns", "lib/sums"),
    *(
        "begin_write",
        "apply_changes",
        "before/apply_changes",
        "begin_sweep",
        "note_read",
        "note_swept",
        "lib/reading",
        "forget_version",
    ),
    *(
        "start_rebuild",
        "load_rows",
        "before/load_rows",
        "swap_rebuilt",
        "before/start_rebuild",
        "before/check_health",
    ),
    *("abandon_rebuild", "unlink_build"),
    *("check_health", "adopt_server", "finish_replay", "lib/server"),
    *("lib/memberships", "lib/beside", "lib/bulk", "lib/permissions"),
)
"""The scripts that write, and the libraries that they call, whose statements are left out."""

ELSEWHERE: Final = ("_Postgresql.", "_MySQL.")
"""What no test runs on SQLite."""


_READ: Final = scripts._read


class Mutant(NamedTuple):
    """A place in a file, and what is different there."""

    file: str
    line: int
    function: str
    what: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}: {self.what}"

    @property
    def name(self) -> str:
        """What is different, wherever its file and its line are by now."""
        return f"{Path(self.file).name} {self.function}: {self.what}"

    @property
    def place(self) -> str:
        """What a test runs if it runs this: a line of Python, or a script, of which no line is known."""
        return self.file if self.file.endswith(".lua") else f"{self.file}:{self.line}"

    def applied(self) -> AbstractContextManager[Any]:
        """Return a context in which the app is like this, in this process and those forked from it."""
        if self.file.endswith(".lua"):
            return _rescripted(self.file, _lua(self.function)[self.number][1])
        module = self.file.removesuffix(".py").replace("/", ".")
        _, tree = next(islice(_python(module), self.number, None))
        path = str(ROOT / self.file)
        return _recoded(import_module(f"django_zrank.{module}"), self.function, compile(tree, path, "exec"))


def mutants() -> Iterator[Mutant]:
    for module, functions in MODULES.items():
        for number, (mutant, _) in enumerate(_python(module)):
            if not mutant.function.startswith(ELSEWHERE) and (not functions or mutant.function in functions):
                yield mutant._replace(number=number)
    for name in SCRIPTS:
        for number, (mutant, _) in enumerate(_lua(name)):
            yield mutant._replace(number=number)


# Python


def _python(module: str) -> Iterator[tuple[Mutant, ast.Module]]:
    """Yield each mutant of a module with its tree, which is that of the next one afterwards."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    tree = ast.parse(path.read_text())
    for function, node in _functions(tree):
        # Code has the cells of its function, also if what is left of it doesn't call super().
        has_super = any(isinstance(one, ast.Name) and one.id == "super" for one in ast.walk(node))
        kept = ast.parse("if 0: super").body * has_super
        for what, line, changed in _changes(node):
            undo = changed()
            node.body += kept
            yield Mutant(str(path.relative_to(ROOT)), line, function, what), tree
            del node.body[len(node.body) - len(kept) :]
            undo()


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions and methods of a module; those within others belong to these."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")


Undo = Callable[[], None]


def _changes(function: ast.FunctionDef) -> Iterator[tuple[str, int, Callable[[], Undo]]]:
    """Yield what can be left out of a function: what it is, its line, and a function that does it."""
    for node in ast.walk(function):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                for at, child in enumerate(value):
                    if isinstance(child, ast.stmt) and child is not function and _counts(child):
                        instead: ast.AST = ast.copy_location(ast.Pass(), child)
                        yield f"without `{_said(child)}`", child.lineno, partial(_replace, value, at, instead)
                        if isinstance(child, ast.With):
                            body = [*value[:at], *child.body, *value[at + 1 :]]
                            said = ", ".join(map(ast.unparse, child.items))
                            yield f"without `with {said}`", child.lineno, partial(_set, node, name, body)
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            for constant in (True, False):
                if not (isinstance(node, ast.While) and constant):
                    test = ast.copy_location(ast.Constant(constant), node.test)
                    what = f"{constant} in place of `{ast.unparse(node.test)}`"
                    yield what, node.test.lineno, partial(_set, node, "test", test)
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                rest = [one for one in node.values if one is not value]
                if len(rest) == 1:
                    rest.insert(0, ast.copy_location(ast.Constant(isinstance(node.op, ast.And)), value))
                what = f"without `{ast.unparse(value)}` in `{ast.unparse(node)}`"
                yield what, value.lineno, partial(_set, node, "values", rest)
        if isinstance(node, ast.comprehension) and node.ifs:
            what = f"without `if {ast.unparse(node.ifs[0])}`"
            yield what, node.ifs[0].lineno, partial(_set, node, "ifs", node.ifs[1:])


def _counts(node: ast.stmt) -> bool:
    """Return False for what says something only, for what is left out piece by piece, and for what does nothing."""
    if isinstance(node, ast.Expr):
        said = ast.unparse(node)
        return not isinstance(node.value, ast.Constant) and not said.startswith(("logger.", "super()"))
    if isinstance(node, ast.AnnAssign):
        return node.value is not None
    pieces = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef, ast.Pass)
    return not isinstance(node, pieces)


def _said(node: ast.AST) -> str:
    return re.sub(r"\s+", " ", ast.unparse(node))[:100]


def _replace(nodes: list[ast.AST], at: int, instead: ast.AST) -> Undo:
    before, nodes[at] = nodes[at], instead
    return partial(nodes.__setitem__, at, before)


def _set(node: ast.AST, name: str, value: Any) -> Undo:
    before = getattr(node, name)
    setattr(node, name, value)
    return partial(setattr, node, name, before)


@contextmanager
def _recoded(module: Any, function: str, whole: CodeType) -> Iterator[None]:
    """Give a function that others have imported already the code that it has in another module."""
    code = next(one for one in _codes(whole) if one.co_qualname == function)
    found: Any = module
    for name in function.split("."):
        found = vars(found)[name]
    for name in ("fget", "func", "__func__", "__wrapped__"):  # what decorators make of it
        found = getattr(found, name, None) or found
    assert isinstance(found, FunctionType), function
    before = found.__code__
    found.__code__ = code
    try:
        yield
    finally:
        found.__code__ = before


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


# Lua


def _lua(name: str) -> list[tuple[Mutant, str]]:
    """Return each mutant of a script, or of the libraries of a name, with its text."""
    return [mutant for path in sorted(ROOT.rglob(f"lua/{name}.lua")) for mutant in _lua_of(path, name)]


def _lua_of(path: Path, name: str) -> list[tuple[Mutant, str]]:
    file = str(path.relative_to(ROOT))
    lines = path.read_text().split("\n")
    found, at = [], 0
    while at < len(lines):
        end = at + 1
        while _depth("\n".join(lines[at:end])) > 0:  # a statement of several lines
            end += 1
        statement = "\n".join(lines[at:end])
        for what, instead in _lua_changes(statement):
            text = "\n".join([*lines[:at], instead, *lines[end:]])
            found.append((Mutant(file, at + 1, name, what), text))
        at = end
    return found


def _depth(text: str) -> int:
    """Return how many brackets are open at the end of a text; 1 for a condition that goes on."""
    code = re.sub(r"--.*", "", text)
    depth = sum(code.count(one) for one in "({[") - sum(code.count(one) for one in ")}]")
    is_open = re.match(r"\s*(else)?(if|while)\b", code) and not re.search(r"\b(then|do)\b", code)
    return depth or int(bool(is_open))


def _lua_changes(statement: str) -> Iterator[tuple[str, str]]:
    """Yield what can be left out of a statement, and the statement after that."""
    code = re.sub(r"\s*--.*", "", statement)
    said = re.sub(r"\s+", " ", code).strip()
    if not said:
        return
    if condition := re.fullmatch(r"(\s*(?:else)?(?:if|while) )(.+?)( (?:then|do))", code, re.DOTALL):
        before, test, after = condition.groups()
        for constant in ("true", "false"):
            if not (constant == "true" and "while" in before):
                yield f"{constant} in place of `{test}`", f"{before}{constant}{after}"
        parts = re.split(r"(\s+(?:and|or)\s+)", test)
        if len(parts) > 1 and not any(map(_depth, parts[::2])):
            for at in range(0, len(parts), 2):
                rest = parts[: at - 1] + parts[at + 1 :] if at else parts[2:]
                yield f"without `{parts[at]}` in `{said}`", f"{before}{''.join(rest)}{after}"
    elif not re.match(r"(end\b|else\b|for\b|local\b)", said):  # whatever uses a local fails without it
        yield f"without `{said[:100]}`", ""


def files_of(script: Script) -> set[str]:
    """Return the files of Lua that a script is made of."""
    files = set[str]()

    def note(file: str, text: str) -> str:
        files.add(file)
        return text

    with _reading(note):
        _made_again(script)
    return files


@contextmanager
def _rescripted(file: str, text: str) -> Iterator[None]:
    """Give a file of Lua another text, in all scripts that it is part of."""
    modules = [module for name, module in [*sys.modules.items()] if name.startswith("django_zrank")]
    found = [one for module in modules for one in vars(module).values() if isinstance(one, Script)]
    found += preceded_scripts()
    found = [other for one in found for other in variants(one)]
    with _reading(lambda each, before: text if each == file else before), ExitStack() as stack:
        for script in {id(one): one for one in found}.values():
            source = _made_again(script)
            if source != script.source:
                sha = sha1(source.encode(), usedforsecurity=False).hexdigest()
                stack.enter_context(mock.patch.multiple(script, source=source, sha=sha))
        yield


@contextmanager
def _reading(change: Callable[[str, str], str]) -> Iterator[None]:
    """Change texts of Lua as they are read."""
    read = scripts._read

    def changed(name: str, package: str) -> str:
        folder = package.removeprefix("django_zrank").replace(".", "/").lstrip("/")
        return change(str(Path(folder, "lua", f"{name}.lua")), read(name, package))

    with mock.patch.object(scripts, "_read", changed):
        yield


def _made_again(script: Script) -> str:
    """Return the source of a script as its files say now."""
    return Script(script.name, script.package, script.parts, script.libraries_of).source
