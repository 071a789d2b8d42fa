"""Every script says what it takes and returns, and its caller keeps to it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import django_zrank
from django_zrank import scripts
from django_zrank.layout import PLAIN, Layout
from django_zrank.scripts import Script
from django_zrank.store import Change, Epoch, Store
from tests.populations import fill
from tests.testapp.zrank import PlayerAscending

SCRIPTS = [value for value in vars(scripts).values() if isinstance(value, Script)]

CALLS: dict[str, Callable[[Store], Any]] = {
    "adopt_server": lambda store: store.adopt_server("a", "1", "s"),
    "check_health": lambda store: store.check_health(),
    "finish_replay": lambda store: store.finish_replay("1"),
    "abandon_rebuild": lambda store: store.abandon_rebuild("b"),
    "apply_changes": lambda store: store.apply_changes(
        Epoch("a", "b", "1", "r"), [Change("1", 5), Change("2", None)]
    ),
    "begin_write": lambda store: store.begin_write(),
    "load_rows": lambda store: store.load_rows("b", [Change("1", 1), Change("2", 2.5)]),
    "read_members": lambda store: store.read_members("a", ["1", "2"]),
    "sample_nearby": lambda store: store.sample_nearby(
        "1", 3, reverse=True, bands=[(1, 2)], excluded=["2"], numbers=bytes
    ),
    "start_rebuild": lambda store: store.start_rebuild("b"),
    "swap_rebuilt": lambda store: store.swap_rebuilt("b"),
}


def header(script: Script, section: str) -> list[str]:
    """The names that the header lists under KEYS or ARGV."""
    names, current = [], ""
    for line in script.source.split("\n\n")[0].splitlines():
        found = re.match(r"-- (KEYS|ARGV|Returns|Cost)?\s+(\S+)", line)
        if found:
            current = found[1] or current
            if current == section and (found[1] or re.match(r"-- {7}\S", line)):
                names.append(found[2])
    return names


FOLDER = Path(django_zrank.__file__).parent / "lua"
PRELUDES = sorted(path.stem for path in FOLDER.glob("lib/*.lua"))


def code(script: Script) -> str:
    return script.source.split("\n\n", 1)[1]


def test_every_file_has_its_constant() -> None:
    assert {path.stem for path in FOLDER.glob("*.lua")} == {script.name for script in SCRIPTS} == set(CALLS)


def test_every_prelude_is_used() -> None:
    assert {prelude for script in SCRIPTS for prelude in script.preludes} == set(PRELUDES)


@pytest.mark.parametrize("prelude", PRELUDES)
def test_a_prelude_holds_nothing_but_functions_that_say_what_they_do(prelude: str) -> None:
    text = (FOLDER / "lib" / f"{prelude}.lua").read_text()
    about, *parts = text.rstrip().split("\n\n")
    assert all(line.startswith("-- ") for line in about.splitlines())
    for part in "\n\n".join(parts).split("\nend"):
        lines = part.strip().splitlines()
        while lines and lines[0].startswith("-- "):
            del lines[0]
        assert not lines or lines[0].startswith("local function ")
        assert all(line.startswith("  ") or not line for line in lines[1:])
    assert "KEYS" not in text
    assert "ARGV" not in text


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_a_script_uses_its_preludes(script: Script) -> None:
    for prelude in script.preludes:
        functions = re.findall(
            r"^local function (\w+)", (FOLDER / "lib" / f"{prelude}.lua").read_text(), re.MULTILINE
        )
        assert any(re.search(rf"\b{function}\(", code(script)) for function in functions)


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_the_first_lines_name_what_the_header_lists(script: Script) -> None:
    keys, args = header(script, "KEYS"), header(script, "ARGV")
    first, second, *rest = code(script).splitlines()
    assert first == f"local {', '.join(keys)} = {', '.join(f'KEYS[{i}]' for i in range(1, len(keys) + 1))}"
    named = [name for name in args if name not in "…-"]
    assert second == "" if not named else second.startswith(f"local {', '.join(named)} = unpack(ARGV")
    body = "\n".join(rest)
    assert "KEYS" not in body
    assert set(re.findall(r"ARGV\[.*?\]", body)) <= {"ARGV[i]", "ARGV[i + 1]", "ARGV[i + 2]"}
    assert all(section in script.source for section in ("-- Returns", "-- Cost"))


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("layout", [PLAIN, Layout(8, True, True)], ids=["plain", "entries"])
@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_the_caller_passes_what_the_header_lists(script: Script, layout: Layout) -> None:
    fill(PlayerAscending, {1: 1, 2: 2})
    store = Store(PlayerAscending.instance().name, layout)
    store.start_rebuild("b")
    with mock.patch.object(Script, "__call__", autospec=True, side_effect=Script.__call__) as called:
        CALLS[script.name](store)
    ours, _, keys, args = called.call_args.args
    assert ours is script
    assert [key.rpartition(":")[2] for key in keys] == header(script, "KEYS")
    listed = header(script, "ARGV")
    if "…" in listed:
        values = len(args) - (len(listed) - 1)
        assert values > 0
        each = 1 if script.name == "read_members" else 3 if layout.entries else 2
        assert values % each == 0
    else:
        assert len(args) == len([name for name in listed if name != "-"])


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_no_script_draws_its_own_randomness(script: Script) -> None:
    assert "math.random" not in script.text
