"""Two indexes of one row, which is read once for both: pushes, and drains in step. The rest of the protocol is as in
``sync.py``, for each index by itself."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import Any, Final, NamedTuple

from .names import Name, Term, Version, key_of
from .search import Found, Step, search

BOTH: Final = (0, 1)


class Index(NamedTuple):
    """What its server holds, and its marks."""

    value: Name
    version: Version = Version(0)
    applied: Version = Version(1)
    term: Term = Term(1)  # the database has noted the same
    marks: tuple[Name, ...] = ()
    is_kept: bool = False  # a batch has the contents of marks that were deleted


class Process(NamedTuple):
    kind: str  # watch, save, or write: a save whose process pushes nothing
    at: str = ""
    left: tuple[int, ...] = ()  # the indexes for which this step is still to be taken
    todo: tuple[int, ...] = ()  # those that are to be written
    written: tuple[int, ...] = ()
    marks: tuple[tuple[Name, ...], ...] = ((), ())
    tokens: tuple[Version, ...] = ()
    terms: tuple[Term, ...] = ()
    read: tuple[Name, ...] = ()
    refusals: tuple[int, ...] = (0, 0)


class World(NamedTuple):
    row: tuple[Name, ...]  # its values, of which each index ranks one
    indexes: tuple[Index, ...]
    processes: tuple[Process, ...]
    saves: int
    faults: int
    last: int = 1

    def change(self, number: int, **changes: Any) -> World:
        return self._replace(indexes=_put(self.indexes, number, self.indexes[number]._replace(**changes)))

    def then(self, number: int, process: Process) -> World:
        return self._replace(processes=_put(self.processes, number, process))


RUNS: Final = {
    "together, two watchers": ("two watchers and two saves", ("watch", "watch", "write"), 2, 0),
    "together, pushed": ("a watcher and two saves, pushed", ("watch", "save"), 2, 0),
    "together, and a fault": (
        "a watcher and two saves; an index that can't be reached, or whose server loses what it was written",
        ("watch", "write"), 2, 1,
    ),
}  # fmt: skip
"""By the name of a run: what may happen, its processes, and how many saves and faults there may be."""

GUARDS: Final = {
    "tokens first": ("together, two watchers", "all tokens are taken before the row that is read for all"),
    "own token": ("together, pushed", "each index is written under its own token"),
    "read again": ("together, two watchers", "the row is read again for an index that has refused it"),
    "own marks": ("together, and a fault", "marks are deleted only of indexes that were written"),
    "own fence": ("together, and a fault", "each index has a fence of its own"),
}
"""By the name of a rule that the search can leave out: the run that goes wrong without it, and the rule."""


class Model:
    def __init__(self, run: str, without: str = "") -> None:
        _, self.kinds, self.saves, self.faults = RUNS[run]
        self.without = without

    def has(self, guard: str) -> bool:
        return guard != self.without

    def run(self) -> Found:
        index = Index(Name(1))
        first = World((Name(1),) * 2, (index,) * 2, (*map(Process, self.kinds),), self.saves, self.faults)
        return search(
            first,
            self.steps,
            wrong=self.wrong,
            calm=lambda world: not self.wrong(world, healthy=True),
            key=self.key,
        )

    def key(self, world: World) -> Any:
        """Return one key for worlds that differ in names, or in how much newer a version is than a token."""
        if self.has("own token"):
            processes = []
            for me in world.processes:
                terms = [seen == index.term for seen, index in zip(me.terms, world.indexes, strict=False)]
                old = [index.version > seen for seen, index in zip(me.tokens, world.indexes, strict=False)]
                processes.append(me._replace(terms=(*map(Term, terms),), tokens=(*map(Version, old),)))
            indexes = [
                one._replace(version=Version(0), applied=Version(0), term=Term(0)) for one in world.indexes
            ]
            world = world._replace(indexes=(*indexes,), processes=(*processes,))
        return _key(world._replace(processes=(*sorted(world.processes),), last=0))

    def wrong(self, world: World, *, healthy: bool = False) -> str:
        """``healthy``: marks that wait are wrong, too."""
        for number, (index, value) in enumerate(zip(world.indexes, world.row, strict=True), 1):
            if index.value != value and (healthy or not index.marks):
                return f"no mark of index {number} waits, and Redis doesn't hold what the database does"
        return "marks wait" if healthy and any(index.marks for index in world.indexes) else ""

    def steps(self, world: World) -> Iterator[Step[World]]:
        for number, me in enumerate(world.processes):
            who = {"watch": "a watcher", "save": "the site", "write": "somebody else"}[me.kind]
            if self.kinds.count(me.kind) > 1:
                who = f"watcher {number + 1}"
            for what, after, then in getattr(self, me.at or me.kind)(world, me):
                yield f"{who} {what}", after.then(number, then), False
            if not me.at:
                continue
            yield f"{who} is killed", world.then(number, Process(me.kind)), True
            if world.faults and me.at in ("asking", "applying"):
                index, after = me.left[0], world._replace(faults=world.faults - 1)
                todo = tuple(one for one in me.todo if one != index)
                gone = self.on(me._replace(todo=todo))
                yield f"{who} can't reach index {index + 1}", after.then(number, gone), True
        for number, index in enumerate(world.indexes if world.faults else ()):
            # Its first value is all that it has, and deleted marks wait again: sync.py has the steps.
            new = Name(world.last + 1)
            after = world._replace(faults=world.faults - 1, last=new)
            lost = Index(Name(1), term=Term(index.term + 1), marks=(*index.marks, *[new] * index.is_kept))
            what = f"index {number + 1} loses its writes, and a term begins"
            yield what, after.change(number, **lost._asdict()), True

    def on(self, me: Process) -> Process:
        """Return the process before this step of the next index, or before the next step."""
        left = me.left[1:]
        if left:
            return me._replace(left=left)
        if me.at == "marking":
            return me._replace(at="asking", left=me.todo) if me.todo else Process(me.kind)
        if me.at == "asking":
            is_read = bool(me.read)
            todo = me.todo if is_read else ()
            return (
                me._replace(at="applying" if is_read else "reading", left=todo)
                if me.todo
                else Process(me.kind)
            )
        if me.at == "applying" and me.todo:
            return me._replace(at="reading", left=()) if self.has("read again") else me._replace(left=me.todo)
        of = me.written if self.has("own marks") else tuple(one for one in BOTH if me.marks[one])
        is_over = me.at == "unmarking" or me.kind != "watch" or not of
        return Process(me.kind) if is_over else me._replace(at="unmarking", left=of)

    def save(self, world: World, me: Process) -> Iterator[tuple[str, World, Process]]:
        for changed in (BOTH, (0,)) if world.saves else ():
            new = Name(world.last + 1)
            after = world._replace(saves=world.saves - 1, last=new)
            for one in changed:
                after = after.change(one, marks=(*world.indexes[one].marks, new))
                after = after._replace(row=_put(after.row, one, new))
            then = Process(me.kind, "asking", BOTH, BOTH) if me.kind == "save" else me
            then = then._replace(tokens=(Version(0),) * 2, terms=(Term(0),) * 2) if then.at else then
            yield "saves the row" if changed is BOTH else "saves a value of index 1", after, then

    write = save

    def watch(self, world: World, me: Process) -> Iterator[tuple[str, World, Process]]:
        if any(index.marks for index in world.indexes):
            tokens, terms = (Version(0),) * 2, (Term(0),) * 2
            yield from self.marking(world, Process(me.kind, "marking", BOTH, tokens=tokens, terms=terms))

    def marking(self, world: World, me: Process) -> Iterator[tuple[str, World, Process]]:
        one = me.left[0]
        marks = world.indexes[one].marks
        then = me._replace(marks=_put(me.marks, one, marks), todo=(*me.todo, *[one] * bool(marks)))
        yield f"reads marks of index {one + 1}", world, self.on(then)

    def asking(self, world: World, me: Process) -> Iterator[tuple[str, World, Process]]:
        one = me.left[0]
        index = world.indexes[one]
        then = me._replace(tokens=_put(me.tokens, one, index.applied), terms=_put(me.terms, one, index.term))
        if not (self.has("tokens first") or me.read):
            then = then._replace(at="reading", left=me.left[1:])
        else:
            then = self.on(then)
        yield f"takes a token of index {one + 1}", world, then

    def reading(self, world: World, me: Process) -> Iterator[tuple[str, World, Process]]:
        at, left = ("asking", me.left) if me.left else ("applying", me.todo)
        yield "reads the row", world, me._replace(at=at, left=left, read=world.row)

    def applying(self, world: World, me: Process) -> Iterator[tuple[str, World, Process]]:
        one = me.left[0]
        index, todo = world.indexes[one], tuple(other for other in me.todo if other != one)
        if index.term != me.terms[one]:
            yield f"is refused by index {one + 1}", world, self.on(me._replace(todo=todo))
            return
        version = Version(index.applied + 1)
        token = me.tokens[one if self.has("own token") else 0]
        refusals = me.refusals[one] + (index.version > token)
        if index.version <= token:
            after = world.change(one, value=me.read[one], version=version, applied=version)
        else:
            after = world.change(one, applied=version)
            if refusals < 2:
                then = me._replace(
                    tokens=_put(me.tokens, one, version), refusals=_put(me.refusals, one, refusals)
                )
                yield f"finds index {one + 1} written since", after, self.on(then)
                return
        yield f"writes to index {one + 1}", after, self.on(me._replace(todo=todo, written=(*me.written, one)))

    def unmarking(self, world: World, me: Process) -> Iterator[tuple[str, World, Process]]:
        one = me.left[0]
        index, fenced = world.indexes[one], one if self.has("own fence") else me.written[0]
        if world.indexes[fenced].term != me.terms[fenced]:
            yield f"leaves the marks of index {one + 1}", world, self.on(me)
            return
        left = tuple(mark for mark in index.marks if mark not in me.marks[one])
        yield (
            f"deletes the marks of index {one + 1}",
            world.change(one, marks=left, is_kept=True),
            self.on(me),
        )


_key: Final = key_of(World)


def line(run: str, found: Found) -> str:
    """Return a run's line of the table."""
    lane = "slow" if "two watchers" in run else "tests"
    return f"| {run} | {RUNS[run][0]} | yes | {found.states:,} | {lane} |"


def lines(guard: str) -> str:
    """Return what happens without a guard."""
    run, rule = GUARDS[guard]
    found = Model(run, guard).run()
    assert found.story is not None, f"nothing goes wrong without {guard!r}"
    story = fill(f"{'; '.join(found.story)}. Then: {found.wrong}.", 118)
    return f"**{rule[0].upper()}{rule[1:]}.** Without it ({run}):\n\n{story}\n"


def _put(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])
