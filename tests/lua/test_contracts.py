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
from django_zrank.scripts import Script
from django_zrank.store import Epoch, Store
from tests.populations import fill
from tests.testapp.zrank import PlayerAscending

SCRIPTS = [value for value in vars(scripts).values() if isinstance(value, Script)]

CALLS: dict[str, Callable[[Store], Any]] = {
    "adopt_server": lambda store: store.adopt_server("a", "1", "s"),
    "check_health": lambda store: store.check_health(),
    "finish_replay": lambda store: store.finish_replay("1"),
    "abandon_rebuild": lambda store: store.abandon_rebuild("b"),
    "apply_changes": lambda store: store.apply_changes(Epoch("a", "b", "1", "r"), [("1", 5), ("2", None)]),
    "begin_write": lambda store: store.begin_write(),
    "load_rows": lambda store: store.load_rows("b", [(1, "1"), (2.5, "2")]),
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
    for line in script.text.split("\n\n")[0].splitlines():
        found = re.match(r"-- (KEYS|ARGV|Returns|Cost)?\s+(\S+)", line)
        if found:
            current = found[1] or current
            if current == section and (found[1] or re.match(r"-- {7}\S", line)):
                names.append(found[2])
    return names


def code(script: Script) -> str:
    return script.text.split("\n\n", 1)[1]


def test_every_file_has_its_constant() -> None:
    folder = Path(django_zrank.__file__).parent / "lua"
    assert {path.stem for path in folder.glob("*.lua")} == {script.name for script in SCRIPTS} == set(CALLS)


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_the_first_lines_name_what_the_header_lists(script: Script) -> None:
    keys, args = header(script, "KEYS"), header(script, "ARGV")
    first, second, *rest = code(script).splitlines()
    assert first == f"local {', '.join(keys)} = {', '.join(f'KEYS[{i}]' for i in range(1, len(keys) + 1))}"
    named = [name for name in args if name not in "…-"]
    assert second == "" if not named else second.startswith(f"local {', '.join(named)} = unpack(ARGV")
    body = "\n".join(rest)
    assert "KEYS" not in body
    assert set(re.findall(r"ARGV\[.*?\]", body)) <= {"ARGV[i]", "ARGV[i + 1]"}
    assert all(section in script.text for section in ("-- Returns", "-- Cost"))


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_the_caller_passes_what_the_header_lists(script: Script) -> None:
    store = fill(PlayerAscending, {1: 1, 2: 2})
    store.start_rebuild("b")
    with mock.patch.object(Script, "__call__", autospec=True, side_effect=Script.__call__) as called:
        CALLS[script.name](store)
    ours, _, keys, args = called.call_args.args
    assert ours is script
    assert [key.rpartition(":")[2] for key in keys] == header(script, "KEYS")
    listed = header(script, "ARGV")
    if "…" in listed:
        pairs = len(args) - (len(listed) - 1)
        assert pairs > 0
        assert pairs % 2 == 0
    else:
        assert len(args) == len([name for name in listed if name != "-"])


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_no_script_draws_its_own_randomness(script: Script) -> None:
    assert "math.random" not in code(script)
