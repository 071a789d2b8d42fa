"""Every script says what it takes and returns, and its caller keeps to it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from redis import Redis

from django_zrank.codec.facets import Facet
from django_zrank.codec.layout import PLAIN, Layout
from django_zrank.exceptions import NotBuilt
from django_zrank.queries.counts import CountFacet, Size
from django_zrank.queries.draws import Draw
from django_zrank.queries.pages import PageAt
from django_zrank.queries.positions import Locate, Placements
from django_zrank.queries.request import Call, Request
from django_zrank.queries.view import View
from django_zrank.redis import executor
from django_zrank.redis.scripts import Script
from django_zrank.store import Change, Epoch, Replaced, Store
from tests.builds import TERM, load_rows, start
from tests.populations import fill
from tests.scripts import FOLDERS, every_script
from tests.testapp.zrank import PlayerAscending
from tests.without_parts.parts import PARTS
from tests.writes import apply_changes, begin_write

from .conftest import ask

SCRIPTS = list(every_script())
NAMED = {script.name: script for script in SCRIPTS}


def ask_shards(store: Store, question: Any, *, together: bool = False, **how: Any) -> Any:
    """The answer to a question over shards, of which there is one."""
    from django_zrank.shards.members import Shards
    from django_zrank.shards.queries import over_shards

    return store.run(lambda keys: over_shards(question, View(store.layout, **how), Shards((keys,), together)))


def touch_members(store: Store) -> None:
    from django_zrank.idle.touching import Touch

    store.run(Touch(store.layout, ["1", "2"]).steps)


def change_scores(store: Store, layout: Layout, changes: list[tuple[str, int]], *key: Any) -> None:
    from django_zrank.write_behind.changes import ChangeScores

    store.run(ChangeScores(layout, "sum", (0, 9), changes, *key).steps)


def check_counts(store: Store, *args: Any) -> None:
    from django_zrank.dense.checking import check_counts

    check_counts(store, *args)


def read_values(store: Store) -> None:
    from django_zrank.dense.values import read_values

    store.run(lambda keys: read_values(View(store.layout, method="dense"), keys, (1.0, b""), 0, 10))


def count_joined(store: Store) -> None:
    from django_zrank.groups import count_joined

    store.run(lambda keys: count_joined(keys, "live", "region"))


def remember(store: Store) -> None:
    from django_zrank.remember.memory import Memory

    ask(Store(store.name), Draw("1", 3, [(1, 2)], avoiding=Memory(10**6)))


def confirm_flush(store: Store) -> None:
    from django_zrank.write_behind.store import Flight

    pending_store(store).confirm_flush(TERM, Flight(1, 1, "sum", {"1": 1, "2": 1}), ["1"])


def pending_store(store: Store) -> Any:
    from django_zrank.write_behind.store import PendingStore

    return PendingStore(store.name, store.layout)


def idle_store(store: Store) -> Any:
    from django_zrank.idle.store import IdleStore

    return IdleStore(store.name, store.layout)


def window_store(store: Store) -> Any:
    from django_zrank.windows.store import WindowStore

    return WindowStore(store.name, store.layout)


def ask_combined(store: Store, question: Any) -> Any:
    """The answer to a question about the members that pass two filters, which no facet covers."""
    filters, view = (import_module(f"django_zrank.combined.{name}") for name in ("filters", "view"))
    tested = filters.CombinedFilter(
        (filters.Clause(False, "r", ("region:kantou",)), filters.Clause(True, "g", ("live",)))
    )
    return store.run(partial(question.steps, view.CombinedView(store.layout, filters=tested)))


CALLS: dict[str, Callable[[Store], Any]] = {
    "adopt_server": lambda store: store.adopt_server(store.check_health(), 7, behind=True),
    "change_group": lambda store: PlayerAscending.group("live").add(1),
    "claim_members": lambda store: PlayerAscending.group("live").claim(1, 2),
    "count_joined": count_joined,
    "leave_group": lambda store: store.call(
        NAMED["leave_group"],
        [f"{store.keys.beside('group', 'live')}{suffix}" for suffix in ("", ":joined", ":counts")],
        ("1",),
    ),
    "count_group": lambda store: PlayerAscending.group("live").contains(1),
    "read_group": lambda store: list(PlayerAscending.group("live")),
    "check_counts": lambda store: check_counts(store, "a", b"region:x", [b"1"]),
    "deal": lambda store: ask(Store(store.name), Draw("1", 3, [(1, 2)]), method="competition"),
    "deal_together": lambda store: ask_shards(Store(store.name), Draw("1", 3, [(1, 2)]), together=True),
    "deal_tested": lambda store: ask_combined(Store(store.name), Draw("1", 3, [(1, 2)])),
    "check_health": lambda store: store.check_health(),
    "forget_version": lambda store: store.call(
        NAMED["forget_version"], (store.keys.recent, store.keys.meta), ("1",)
    ),
    "drop_pending": lambda store: store.call(
        NAMED["drop_pending"], (store.keys.meta, f"{store.keys.tag}:pending"), ("1", "")
    ),
    "unlink_retired": lambda store: store.call(
        NAMED["unlink_retired"], (store.keys.meta, store.keys.recent), ()
    ),
    "finish_replay": lambda store: store.finish_replay("1"),
    "abandon_rebuild": lambda store: store.abandon_rebuild("b"),
    "apply_changes": lambda store: apply_changes(
        store, Epoch("a", "b", "1", "r"), [Change("1", 5), Change("2", None)]
    ),
    "begin_write": lambda store: begin_write(store),
    "change_scores": lambda store: change_scores(store, store.layout, [("1", 1), ("2", 2)], "k", 60),
    "increment_scores": lambda store: change_scores(store, PLAIN, [("1", 1)]),
    "reconcile_pending": lambda store: pending_store(store).reconcile_pending(
        store.check_health(), 3, committed=True, everything=False, members=["1", "2"]
    ),
    "touch_members": touch_members,
    "rest_members": lambda store: idle_store(store).rest_members(["1", "2"], timedelta(days=1)),
    "begin_sweep": lambda store: window_store(store).begin_sweep(),
    "note_read": lambda store: store.call(NAMED["note_read"], (store.keys.meta,), (5, 7)),
    "note_swept": lambda store: window_store(store).note_swept(window_store(store).begin_sweep(), 5, 7),
    "confirm_flush": confirm_flush,
    "settle_flush": lambda store: pending_store(store).settle_flush(TERM, 1),
    "take_pending": lambda store: pending_store(store).take_pending(TERM, 0, 10),
    "count_before": lambda store: ask_shards(store, Locate(["1", "2"])),
    "count_facet": lambda store: ask(store, CountFacet(Facet(("region",), (), many=False))),
    "read_best": lambda store: store.call(
        NAMED["read_best"], (store.live.root,), (0, 9, "REV", "WITHSCORES")
    ),
    "read_page": lambda store: ask(store, PageAt(0, 3), method="competition"),
    "read_values": read_values,
    "read_placements": lambda store: ask(store, Placements("1", ["region"]), method="competition"),
    "read_ranks": lambda store: ask(store, Locate(["1", "7"]), method="competition"),
    "load_rows": lambda store: load_rows(store, "b", [Change("1", 1), Change("2", 2.5)]),
    "make_combined": lambda store: ask_combined(Store(store.name), Size()),
    "read_remembered": remember,
    "remember_members": remember,
    "sample_nearby": lambda store: ask(Store(store.name), Draw("1", 3, [(1, 2)])),
    "start_rebuild": lambda store: start(store, "b"),
    "unlink_build": lambda store: store.unlink_doomed(),
    "swap_rebuilt": lambda store: store.swap_rebuilt("b"),
}


def header(script: Script, section: str) -> list[str]:
    """The names that the header lists under KEYS or ARGV."""
    return header_of(script.text, section)


def header_of(text: str, section: str) -> list[str]:
    names, current = [], ""
    for line in text.split("\n\n")[0].splitlines():
        found = re.match(r"-- (KEYS|ARGV|Returns|Cost)?\s+(\S+)", line)
        if found:
            current = found[1] or current
            if current == section and (found[1] or re.match(r"-- {7}\S", line)):
                names.append(found[2])
    return names


FILES = sorted(path for folder in FOLDERS for path in folder.glob("*.lua"))
BEFORE = sorted(path for folder in FOLDERS for path in folder.glob("before/*.lua"))
LIBRARY_FILES = [path for folder in FOLDERS for path in sorted(folder.glob("lib/*.lua"))]
LIBRARIES = {path.stem: path for path in reversed(LIBRARY_FILES)}
"""The libraries by their names: the kernel's, where a part has one in its place."""


def code(script: Script) -> str:
    return script.text.split("\n\n", 1)[1]


def functions_of(library: str) -> list[str]:
    return functions_in(LIBRARIES[library])


def functions_in(path: Path) -> list[str]:
    return re.findall(r"^local function (\w+)", path.read_text(), re.MULTILINE)


def test_every_file_has_its_constant() -> None:
    assert sorted(path.stem for path in FILES) == sorted(NAMED)
    assert set(NAMED) <= set(CALLS)  # a part may have been deleted


def test_every_library_is_used() -> None:
    used = {library for script in SCRIPTS for library in script.libraries}
    for_parts = {"writable"}
    assert used | for_parts == set(LIBRARIES)


@pytest.mark.parametrize("path", LIBRARY_FILES, ids=str)
def test_a_library_holds_nothing_but_functions_that_say_what_they_do(path: Path) -> None:
    text = path.read_text()
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


def test_a_library_in_place_of_the_kernel_s_has_the_same_functions() -> None:
    for path in LIBRARY_FILES:
        assert functions_in(path) == functions_of(path.stem)


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_a_script_uses_its_libraries(script: Script) -> None:
    for library in script.libraries:
        assert any(
            len(re.findall(rf"\b{function}\b", script.source)) > 1 for function in functions_of(library)
        )


@pytest.mark.parametrize("path", [*FILES, *BEFORE, *LIBRARY_FILES], ids=lambda path: path.stem)
def test_the_first_line_names_the_libraries_whose_functions_are_called(path: Path) -> None:
    text = path.read_text()
    named = re.match(r"-- uses: (.+)\n", text)
    body = re.sub(r"--.*", "", text)
    own = set(re.findall(r"\blocal (?:function )?(\w+)", body))
    calls = set(re.findall(r"(?<![\w.])\w+(?=\()", body)) - own
    called = {library for library in LIBRARIES if calls & set(functions_of(library))}
    passed = {library for library in LIBRARIES if set(re.findall(r"\w+", body)) & set(functions_of(library))}
    assert called - {path.stem} <= set(named[1].split(", ") if named else ()) <= passed


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_the_first_lines_name_what_the_header_lists(script: Script) -> None:
    keys, args = ([name for name in header(script, one) if name not in "…-"] for one in ("KEYS", "ARGV"))
    text = code(script) if keys else f"\n{code(script)}"
    first, second, *rest = re.split(r"\n(?=local|$|\n)", text, maxsplit=2)
    numbered = (f"KEYS[{i}]" for i in range(1, len(keys) + 1))
    assert first == (f"local {', '.join(keys)} = {', '.join(numbered)}" if keys else "")
    unpacked = f"local {', '.join(args)} = unpack(ARGV"
    assert " ".join(second.split()).startswith(unpacked) if args else second == ""
    body = "\n".join(rest)
    if "…" not in header(script, "KEYS"):
        assert "KEYS" not in body
    allowed = {"ARGV[i]", "ARGV[i + 1]", "ARGV[i + 2]", "ARGV[FIRST]", "ARGV[FIRST + 1]"}
    assert set(re.findall(r"ARGV\[.*?\]", body)) <= allowed
    assert all(section in script.text for section in ("-- Returns", "-- Cost"))


@pytest.mark.usefixtures("zrank")
@pytest.mark.parametrize(
    "layout",
    [PLAIN, Layout(8, True), pytest.param(Layout(8, True, "dense"), marks=pytest.mark.part("dense"))],
    ids=["plain", "memberships", "dense"],
)
@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_the_caller_passes_what_the_header_lists(script: Script, layout: Layout) -> None:
    fill(PlayerAscending, {1: 1, 2: 2})
    store = Store(PlayerAscending.instance().name, layout)
    start(store, "b")
    store.unlink_doomed()
    store.client.sadd(store.keys.doomed, "a")
    builds = {store.check_health().build}
    calls: list[Call] = []
    send_request = executor.send_request

    def note(client: Redis, request: Request) -> list[Any]:
        calls.extend(request.calls)
        return send_request(client, request)

    with mock.patch.object(executor, "send_request", note), suppress(Replaced):
        CALLS[script.name](store)
    sent, keys, args = next(
        (call.command, call.keys, call.arguments)
        for call in calls
        if isinstance(call.command, Script) and call.command.name == script.name
    )
    before = [path.read_text() for path in BEFORE if path.stem == script.name] if sent.parts else []
    lists = {
        section: [
            *header(script, section),
            *(name for text in before for name in header_of(text, section) if name != "…"),
        ]
        for section in ("KEYS", "ARGV")
    }
    for section, given in (("KEYS", keys), ("ARGV", args)):
        listed = [name for name in lists[section] if name != "-"]
        if "…" in listed:
            assert len(given) >= len(listed) - 1
        else:
            assert len(given) == len(listed)
    roots = {"live", "shadow", "root", "ranking"}
    names = {
        "remembered": "remembered:1",
        "once": f"once:{sha256(b'k').hexdigest()[:32]}",
        "group": "group:live",
        "joined": "group:live:joined",
        "counts": "group:live:counts",
    }
    for key, name in zip(keys, lists["KEYS"], strict=False):
        if name in roots:
            assert key.partition("}:")[2] in {*builds, "a", "b", ""}
        elif name not in ("…", "combined_filter"):
            assert key.partition("}:")[2] == names.get(name, name)


@pytest.mark.parametrize("path", FILES + BEFORE, ids=str)
def test_a_reply_says_in_a_word_what_it_means(path: Path) -> None:
    """Functions of a script may answer it with true and false."""
    replies = re.sub(r"^local function .*?^end$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"return (?:[01]|nil|true|false|\{\})?$", replies, re.MULTILINE) == []
    lines = [line for line in path.read_text().splitlines() if not line.startswith("--")]
    assert [line for line in lines if re.search(r"and '[01]?' or ", line)] == []
    assert [line for line in lines if re.search(r"(?:reply|return ).* and [01] or ", line)] == []


def test_a_suffix_of_keys_is_spelled_once() -> None:
    spelled = Counter(
        suffix
        for path in (*FILES, *BEFORE, *LIBRARY_FILES)
        for line in path.read_text().splitlines()
        if not line.startswith("--") and "match(" not in line
        for suffix in re.findall(r"\.\. '(:\w*)'", line)
    )
    # A ranking's name, and a flush's number.
    twice = {":": 2} if PARTS["write_behind"].is_there else {}
    assert {suffix: count for suffix, count in spelled.items() if count > 1} == twice


WRITE = re.compile(
    r"(?:call|write_all)\('(?:ZADD|ZREM\w*|ZPOPMIN|HSET\w*|HDEL|HINCRBY|SADD|SREM|SET|UNLINK|RENAME|P?EXPIRE\w*)'"
)

MAY_END = {
    "begin_write": "the build of a dead rebuild is doomed, and taken off that list if it is still noted",
    "load_rows": "the rebuild fails, and what it has filled is unlinked",
    "begin_sweep": "the sweep has begun, and what it goes by is noted before what is taken back",
    "note_swept": "the note of a time in the future is left, and the next sweep removes it",
    "rest_members": "members whose rest is over are removed first",
}
"""Scripts that may end after each of their writes, and why."""


def test_a_script_that_writes_by_several_commands_asks_first_if_it_may() -> None:
    several = {script.name for script in SCRIPTS if len(WRITE.findall(code(script))) > 1}
    asking = {script.name for script in SCRIPTS if "require_commands(" in code(script)}
    assert several - asking == MAY_END.keys() & NAMED.keys()
    assert not asking & MAY_END.keys()


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_a_script_that_asks_sends_the_names_of_commands(script: Script) -> None:
    sent = re.findall(r"^ *require_commands\((.*)\)$", script.source, re.MULTILINE)
    assert len(sent) == len(re.findall(r"^ *require_commands\(", script.text, re.MULTILINE))
    assert all(re.fullmatch(r"\w+(?:, '[A-Z]+')+", names) for names in sent)


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_no_script_draws_its_own_randomness(script: Script) -> None:
    assert "math.random" not in script.source


@pytest.mark.parametrize(
    "question",
    [Locate(["1"]), CountFacet(Facet(("region",), (), many=False)), PageAt(0, 1), Draw("2", 10, [(1, 1)])],
    ids=lambda question: type(question).__name__,
)
def test_an_index_that_is_not_there_answers_no_script(zrank: Redis, store: Store, question: Any) -> None:
    zrank.flushall()
    with pytest.raises(NotBuilt):
        ask(store, question)
