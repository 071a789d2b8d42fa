"""Capture: triggers that leave a mark for every change that can move a member.

A mark is written in the transaction of the change, so both commit or neither does. A new trigger leaves a mark for all
members, because changes before it went unnoticed.

Triggers have one life cycle, whichever release looks at them. The database notes which declaration of an index they
belong to (``Capture.declaration``). Commands that somebody runs note their own: ``migrate`` and ``capture_zrank``
(:func:`install`), and ``rebuild_zrank`` before it reads (:func:`record`). Each creates what its declaration needs.
Workers of other releases touch no trigger, since a migration may be about to drop the column that it names, and build
the index only if no other release's build is live (:func:`refusal`). Once the new build is live, the next process that
checks the triggers drops those that its declaration doesn't need (``TriggerSet.contract()``).

Triggers of unknown indexes are dropped on request only (:func:`drop`). During ``migrate``, triggers are dropped with
the columns that they name (:func:`guard`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import groupby
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

from django.db import DatabaseError, connections, transaction
from django.db.models import Model
from django.utils.functional import cached_property  # takes no lock, as that of Python 3.11 does

from ..builds import RETIRED
from ..conf import get_settings
from ..declaration import Index
from ..exceptions import CaptureError, IndexUnavailable
from ..models import Build, Capture, Mark
from ..recent import Recent
from ..registry import registry
from ..store import Store
from ..transactions import is_delay
from .dialect import Trigger, Unit, digest, owner_of
from .dialects import DIALECTS
from .watched_tables import WatchedTable, depends_on_time, merged, watched_tables

logger = logging.getLogger("django_zrank.sync")

_PATIENCE: Final = 60.0
"""Seconds for which ``install()`` tries again while tables are locked."""

_PAUSE: Final = 0.5

_EXAMINED: Final = 60.0
"""Seconds for which a process that saves relies on triggers that it has seen. Workers look every ten seconds."""

_examined: Recent[bool] = Recent()
"""By database and index: True if every change of it leaves a mark."""


class Changes(NamedTuple):
    """Changes made to the triggers of a database."""

    created: Sequence[Trigger]
    dropped: Sequence[Trigger]


@dataclass(frozen=True)
class TriggerReport:
    """The triggers of a database, compared with those that there should be."""

    mode: str
    """``triggers`` or ``signals``."""

    missing: Sequence[Trigger] = ()
    """Missing, disabled, of an account that is gone, naming a column that is gone, or on a table that was restored or
    swapped, or whose partitions have changed: changes go unnoticed, or fail."""

    outdated: Sequence[Trigger] = ()
    """Of another declaration of these indexes, or of an index that has moved to another database. They cost time."""

    unexpected: Sequence[Trigger] = ()
    """Of indexes that aren't registered: another project's, or removed ones. Nobody drains their marks."""

    error: str | None = None
    """The reason why the database can't have triggers, why some can't be created, or why they don't notice everything.
    """

    is_covered: bool = False
    """True if those missing are of an earlier release of the same declaration: the later one's record the same."""

    @property
    def is_complete(self) -> bool:
        """True if all of this release's own triggers are there."""
        return not (self.missing or self.error)

    @property
    def works(self) -> bool:
        return self.is_complete or (self.is_covered and not self.error)


def captured(using: str) -> list[Index]:
    """Return the registered indexes whose models live in this database."""
    return [index for index in registry.all() if index.get_using() == using]


def sharing(using: str) -> list[Index]:
    """Return the registered indexes whose models live in the same database under another alias, such as a pooler's."""
    own, found = connections[using], []
    # A service's settings may leave out databases that it doesn't use.
    for alias in {index.get_using() for index in registry.all()}.intersection(connections) - {using}:
        other = connections[alias]
        names = {str(connection.settings_dict["NAME"]) for connection in (own, other)}
        if other.vendor in DIALECTS and other.vendor == own.vendor and len(names) == 1:
            with suppress(DatabaseError):  # unreachable: skip it
                one, two = (DIALECTS[own.vendor](connection, []).identity() for connection in (own, other))
                if one == two:
                    found += captured(alias)
    return found


def builds_of(index: Index, using: str, *, lock: bool = False) -> Iterator[Build]:
    """Yield the rows of the builds of ``index`` in a database, of its holders in any release."""
    rows = Build.objects.using(using).filter(index__startswith=index.name)
    rows = rows.select_for_update() if lock else rows
    return (row for row in rows if index.may_hold(row.index))


def departed(using: str) -> list[Index]:
    """Return the indexes that live in another database, of which this one has a build. A standby has the same one."""
    found: list[Index] = []
    for index in registry.all():
        home = index.get_using()
        if home != using and home in connections:
            here, there = (_owners(index, alias) for alias in (using, home))
            if here and not here & there:
                found.append(index)
    return found


def _owners(index: Index, using: str) -> set[str]:
    """Return the owners of the builds of ``index`` that a database notes: its own, or that which it was copied from."""
    connection = connections[using]
    dialect = DIALECTS.get(connection.vendor)
    if dialect is None or not dialect(connection, []).has(Build._meta.db_table, ["owner"]):
        return set()
    return {row.owner for row in builds_of(index, using)} - {""}


class TriggerSet:
    """The triggers that some indexes need in a database, and those that it has."""

    def __init__(self, using: str, indexes: Collection[Index]) -> None:
        self.using, self.indexes, connection = using, indexes, connections[using]
        sources: list[WatchedTable] = []
        if get_settings().capture == "triggers":
            for index in indexes:  # one trigger for several paths to the same rows
                sources += merged(
                    watched_tables(index), lambda one: (one.model, one.via, one.column, one.is_referenced)
                )
        self.dialect = DIALECTS[connection.vendor](connection, {source.table for source in sources})
        self.units = [self.dialect.unit(source) for source in sources]
        self.wanted = {trigger for unit in self.units for trigger in unit.create}
        self.owners = {owner_of(index.name) for index in indexes}

    @cached_property
    def found(self) -> dict[Trigger, bool]:
        return self.dialect.installed()

    # What the database notes

    @cached_property
    def notes(self) -> dict[str, Capture]:
        """The notes of these indexes, by their names."""
        rows = Capture.objects.using(self.using)
        in_transaction = connections[self.using].in_atomic_block
        try:
            with transaction.atomic(self.using) if in_transaction else nullcontext():
                return rows.in_bulk([index.name for index in self.indexes])
        except DatabaseError:
            if self.has_tables(Capture):
                raise
            return {}  # not yet migrated

    def has_tables(self, *models: type[Model]) -> bool:
        return all(self.dialect.has(model._meta.db_table, ["index"]) for model in models)

    def declared(self, index: Index) -> str:
        """Return text that identifies the declaration of ``index``: its build and the texts of its triggers, which may
        change with the app's version. The states of their tables don't matter."""
        own = [unit.source for unit in self.units if unit.source.index == index.name]
        texts = sorted(f"{one.table} {text}" for one in own for text in self.dialect.texts_for(one))
        if not texts:
            return f"{index.declaration}-"
        texts.append(f"{len(index.holders)} parts")
        return f"{index.declaration}-{digest(' '.join(texts))}"

    def is_current(self, index: Index) -> bool:
        """Return True if the triggers of the database belong to this declaration of ``index``, or to none. With
        ``CAPTURE = "signals"``, there are none."""
        note = self.notes.get(index.name)
        return note is None or note.declaration in ("", f"{index.declaration}-", self.declared(index))

    def take_over(self) -> None:
        """Note that the triggers belong to these declarations."""
        rows = []
        for index in self.indexes:
            note = self.notes.setdefault(index.name, Capture(index=index.name))
            if note.declaration != self.declared(index):
                note.declaration = self.declared(index)
                rows.append(note)
        if rows and self.has_tables(Capture):
            names = (
                ["index"] if self.dialect.connection.features.supports_update_conflicts_with_target else None
            )
            Capture.objects.using(self.using).bulk_create(
                rows, update_conflicts=True, unique_fields=names, update_fields=["declaration"]
            )

    def is_noted(self, unit: Unit) -> bool:
        """Return True if all changes of a unit's table have left marks since its triggers were made, by its state."""
        state, note = self.dialect.state(unit), self.notes.get(unit.source.index)
        return state is None or (note is not None and note.tables.get(state[0]) == state[1])

    def note(self, unit: Unit) -> None:
        """Leave a mark for all members, and note the state of the unit's table."""
        state, name = self.dialect.state(unit, again=True), unit.source.index
        with transaction.atomic(self.using):
            Mark.objects.using(self.using).create(index=name)
            if state is not None:
                Capture.objects.using(self.using).get_or_create(index=name)
                row = Capture.objects.using(self.using).select_for_update().get(index=name)
                row.tables[state[0]] = state[1]
                row.save(using=self.using, update_fields=["tables"])
                self.notes[name] = row

    # What it has

    @cached_property
    def dangling(self) -> set[Trigger]:
        """Triggers that name a missing column, if tables have owners who rename columns: those of unmanaged models.
        Migrations drop such triggers themselves, and a look costs queries."""
        if all(unit.source.model._meta.managed for unit in self.units):
            return set()
        return {trigger for trigger in self.dialect.dangling() if trigger.owner in self.owners}

    def is_in_place(self, unit: Unit) -> bool:
        return all(self.found.get(trigger) for trigger in unit.create)

    @property
    def missing(self) -> set[Trigger]:
        """Triggers that are missing, fail their tables' writes, or are on a table in another state than was noted."""
        missing = {trigger for trigger in self.wanted if not self.found.get(trigger)} | self.dangling
        for unit in self.units:
            if not missing.intersection(unit.create) and not self.is_noted(unit):
                missing.update(unit.create)
        return missing

    @property
    def replaced(self) -> set[Trigger]:
        """Triggers that a later release of the same declaration has replaced by others, which record the same."""
        later = [index for index in self.indexes if not self.is_current(index)]
        names = {
            index.name
            for index in later
            if self.notes[index.name].declaration.startswith(f"{index.declaration}-")
        }
        watched = {(trigger.table, trigger.owner) for trigger, active in self.found.items() if active}
        return {
            trigger
            for unit in self.units
            if unit.source.index in names
            for trigger in unit.create
            if (trigger.table, trigger.owner) in watched
        }

    @property
    def outdated(self) -> set[Trigger]:
        """Triggers of these indexes that aren't wanted."""
        return (
            {trigger for trigger in self.found if trigger.owner in self.owners} - self.wanted - self.dangling
        )

    def obstacles(self) -> set[Trigger]:
        """Return the triggers to drop before missing ones are created.

        They have the name of one of them (after two tables have swapped names), or fail their tables' writes (because
        the account that created them, or a column that they name, is gone).
        """
        names = {trigger.name for trigger in self.wanted} if self.dialect.unique_names else set()
        return self.dangling | {
            trigger
            for trigger, active in self.found.items()
            if (not active and trigger.owner in self.owners)
            or (trigger not in self.wanted and trigger.name in names)
        }

    def add(self) -> Changes:
        """Create the missing triggers of tables and columns that exist, after obstacles were dropped. Leave a mark for
        all members of each table that is in another state than was noted."""
        obstacles = self.obstacles()
        self.drop(obstacles)
        created: list[Trigger] = []
        lacking = [unit for unit in self.units if not (self.is_in_place(unit) and self.is_noted(unit))]
        if lacking and self.has_tables(Mark, Build, Capture):
            for unit in filter(self.fits, lacking):
                missing = [trigger for trigger in unit.create if not self.found.get(trigger)]
                if missing:
                    self.create(unit, missing)
                    self.found.update(dict.fromkeys(missing, True))
                    created += missing
                elif not self.is_noted(unit):
                    self.note(unit)
        return Changes(created, sorted(obstacles))

    def check_complete(self) -> None:
        """Raise ``CaptureError`` if some triggers can't be created for lack of columns. Others stay."""
        if reason := self.unfit():
            raise CaptureError(reason)

    def contract(self) -> list[Trigger]:
        """Drop the triggers that these indexes don't need any more, if what is live was built as they declare. Return
        those dropped. It waits for no lock for long, and leaves what it can't drop to the next time."""
        dropped: list[Trigger] = []
        if not self.outdated or not self.has_tables(Build):
            return dropped
        lacking = {trigger.owner for trigger in self.missing}
        ready = [
            index for index in self.indexes if self.is_current(index) and owner_of(index.name) not in lacking
        ]
        for index in ready:
            unwanted = sorted(trigger for trigger in self.outdated if trigger.owner == owner_of(index.name))
            for table, group in groupby(unwanted, lambda trigger: trigger.table):
                triggers = list(group)
                try:
                    # Who takes the index in between waits, and then creates again what it needs.
                    with self.dialect.short_lock_timeout(), transaction.atomic(self.using):
                        if self.is_live(index):
                            self.drop(triggers)
                            dropped += triggers
                except (CaptureError, DatabaseError, IndexUnavailable) as error:
                    logger.info("Outdated triggers of %s will be dropped later. %s", table, error)
        return dropped

    def is_live(self, index: Index) -> bool:
        """Return True if the triggers still belong to this declaration of ``index``, every build that the database
        notes is of it, too, and no other one is being made. Lock the notes. Raises ``IndexUnavailable``."""
        notes = Capture.objects.using(self.using).select_for_update()
        self.notes.update(notes.in_bulk([index.name]))
        if not self.is_current(index):
            return False
        for row in builds_of(index, self.using, lock=True):
            if row.build == RETIRED:
                continue
            if not index.declares(row.build):
                return False
            # A dead rebuild stays noted, until the next one begins.
            if not index.declares(row.building):
                made = Store(row.index).read_meta("building", "build")  # it may just have been swapped
                if row.building in made:
                    return False
        return True

    def fits(self, unit: Unit) -> bool:
        """Return True if all columns exist that a unit names."""
        return self.dialect.has(unit.source.table, _columns(unit))

    def unfit(self) -> str:
        """Return the tables or columns for lack of which triggers can't be created; '' if there are none."""
        found: set[str] = set()
        for unit in self.units:
            if not self.is_in_place(unit) and not self.fits(unit):
                table, columns = unit.source.table, self.dialect.columns(unit.source.table)
                absent = [name for name in _columns(unit) if self.dialect.fold(name) not in columns]
                found.update(f"{table} has no column {name!r}" for name in absent if columns)
                found.update([] if columns else [f"there is no table {table}"])
        return f"Triggers can't be created: {'; '.join(sorted(found))}." if found else ""

    def unrestored(self) -> str:
        """Return the indexes whose missing triggers no worker of this release restores, and what to do; '' if there are
        none."""
        missing = {trigger.owner for trigger in self.missing - self.replaced}
        names = [
            repr(index.name)
            for index in self.indexes
            if owner_of(index.name) in missing and not self.is_current(index)
        ]
        if not names:
            return ""
        return (
            f"Triggers of {', '.join(names)} are missing, and the database notes those of another release, which has "
            "run migrate since. Start that release; or run capture_zrank with this one, if it is to go on."
        )

    def create(self, unit: Unit, missing: Iterable[Trigger]) -> None:
        dialect, table = self.dialect, unit.source.table
        _examined.clear()
        atomic = transaction.atomic(self.using) if dialect.transactional else nullcontext()
        with self.explained(table), atomic, dialect.connection.cursor() as cursor:
            if unit.seal:
                cursor.execute(dialect.drop(unit.seal))
            for statement in unit.prepare:
                cursor.execute(statement)
            for trigger in missing:
                if trigger != unit.seal:
                    cursor.execute(unit.create[trigger])
            # A migration may have committed while this waited for the table.
            if not self.fits(unit):
                raise CaptureError(
                    f"Database {self.using!r}: {table} has changed while its triggers were made."
                )
            self.note(unit)  # all changes until now left no marks
            if unit.seal:
                cursor.execute(dialect.seal(unit))

    def drop(self, triggers: Collection[Trigger]) -> None:
        """Drop triggers, and functions that no trigger uses any more."""
        if not triggers:
            return
        _examined.clear()
        atomic = transaction.atomic(self.using) if self.dialect.transactional else nullcontext()
        with atomic, self.dialect.connection.cursor() as cursor:
            for statement in self.dialect.alone():
                cursor.execute(statement)
            for trigger in sorted(triggers):
                with self.explained(trigger.table):
                    cursor.execute(self.dialect.drop(trigger))
            for statement in self.dialect.leftovers():
                cursor.execute(statement)
        for trigger in triggers:
            self.found.pop(trigger, None)

    @contextmanager
    def explained(self, table: str) -> Iterator[None]:
        """Raise ``CaptureError``, with advice, if the database refuses."""
        try:
            yield
        except DatabaseError as error:
            raise CaptureError(
                f"Database {self.using!r} refuses to change triggers of {table}: {str(error).strip()}. "
                f"{self.dialect.advice} Or do without: set ZRANK = "
                '{"CAPTURE": "signals"}, whose gaps are documented.'
            ) from error


def _columns(unit: Unit) -> list[str]:
    return [str(field.column) for field in unit.source.columns]


def _triggers(using: str, indexes: Collection[Index] = ()) -> TriggerSet | None:
    """Return the triggers of a database; None if it can't have any, and needs none."""
    connection = connections[using]
    if connection.vendor in DIALECTS:
        return TriggerSet(using, indexes)
    if indexes and get_settings().capture == "triggers":
        raise CaptureError(
            f"Database {using!r}: there are no triggers for {connection.display_name}. "
            'Set ZRANK = {"CAPTURE": "signals"}.'
        )
    return None


def examine_triggers(using: str, indexes: Collection[Index], *, thorough: bool = False) -> TriggerReport:
    """Compare the triggers of a database with what these indexes ask for. ``thorough``: look for those of indexes that
    have moved to another database, too.

    MariaDB and MySQL show triggers only to an account that has the TRIGGER privilege.
    """
    mode, own = get_settings().capture, _triggers(using, indexes)
    if own is None:
        return TriggerReport(mode)
    known = own.owners | {owner_of(index.name) for index in registry.all()}
    strangers = {trigger for trigger in own.found if trigger.owner not in own.owners}
    gone = {owner_of(index.name) for index in departed(using)} if thorough else set()
    problems = [f"{table} {problem}" for table, problem in sorted(own.dialect.problems().items())]
    errors = [f"Triggers can't watch every table: {'; '.join(problems)}."] if problems else []
    errors += filter(None, [own.unfit(), own.unrestored()])
    return TriggerReport(
        mode,
        missing=sorted(own.missing),
        outdated=sorted(own.outdated | {trigger for trigger in strangers if trigger.owner in gone}),
        unexpected=sorted(trigger for trigger in strangers if trigger.owner not in known),
        error=" ".join(errors) or None,
        is_covered=own.missing <= own.replaced,
    )


def unwatchable(using: str, indexes: Collection[Index]) -> Iterator[tuple[Index, str, str]]:
    """Yield each index with a table that triggers can't watch, or with one of the app's own that can't hold marks, and
    the reason."""
    for index in indexes:
        if own := _triggers(using, [index]):
            yield from ((index, table, problem) for table, problem in sorted(own.dialect.problems().items()))


def examine_capture(index: Index) -> TriggerReport:
    """Return the status of the triggers of ``index``, with the error if its database can't have any."""
    try:
        return examine_triggers(index.get_using(), [index])
    except CaptureError as error:
        return TriggerReport(get_settings().capture, error=str(error))


def fully_captured(using: str, indexes: Collection[Index]) -> set[Index]:
    """Return those of ``indexes`` of which every change leaves a mark, as this process has seen in the last minute: if
    no mark waits, what Redis holds of them is up to date."""
    if get_settings().capture != "triggers":
        return set()
    known = {index: _examined.get((using, index)) for index in indexes}
    if None in known.values():
        found = _examine(using, indexes)
        known = {index: _examined.keep((using, index), index in found, _EXAMINED) for index in indexes}
    return {index for index, is_captured in known.items() if is_captured}


def _examine(using: str, indexes: Collection[Index]) -> set[Index]:
    """Return what :func:`fully_captured` does; an empty set if the database can't be examined."""
    connection = connections[using]
    try:
        with transaction.atomic(using) if connection.in_atomic_block else nullcontext():
            if DIALECTS[connection.vendor](connection, []).disturbs_writers():
                return set()
            # Together, which takes a fraction of the queries.
            complete = {*indexes}
            if not examine_triggers(using, indexes).is_complete:
                complete = {index for index in indexes if examine_capture(index).is_complete}
            return {index for index in complete if not depends_on_time(index)}
    except Exception:  # of a declaration, or of an account that may not read the catalog
        logger.debug("Database %r: its triggers can't be examined", using, exc_info=True)
        return set()


def restore(index: Index) -> bool:
    """Restore the missing triggers of ``index``, and drop those that it doesn't need any more, without waiting long for
    locks. Return True if some were missing, or not to be relied on.

    If the triggers belong to another release, it does nothing. Raises :exc:`~django_zrank.exceptions.CaptureError`; if
    only some can't be created, for lack of a column, after the others were.
    """
    own = _triggers(index.get_using(), [index])
    if own is None or not own.is_current(index):
        return False
    was_missing = bool(own.missing or own.obstacles())
    if was_missing or index.name not in own.notes:
        with own.explained(index.model._meta.db_table), own.dialect.short_lock_timeout():
            own.take_over()
            own.add()
        own.check_complete()
    own.contract()
    return was_missing


def record(index: Index) -> None:
    """Note that the triggers of the database belong to this declaration, and create those that it needs, as ``migrate``
    does. Raises :exc:`~django_zrank.exceptions.CaptureError`."""
    own = _triggers(index.get_using(), [index])
    if own is not None and not (own.is_current(index) and index.name in own.notes):
        is_other = not own.is_current(index)
        with own.explained(index.model._meta.db_table), own.dialect.short_lock_timeout():
            own.take_over()
            if is_other:
                own.add()


def contract(index: Index) -> None:
    """Drop the triggers that ``index`` doesn't need any more, now that a build of it is live."""
    with suppress(CaptureError):  # there are no triggers for this database
        if own := _triggers(index.get_using(), [index]):
            own.contract()


def refusal(index: Index) -> str:
    """Return the reason why workers of this release don't build ``index``, and what to do; '' if they do.

    They leave it alone if another release's build is live, and the database doesn't note that the triggers belong to
    this one. Otherwise the workers of two releases would take turns.
    """
    own = _triggers(index.get_using(), [index])
    if own is None or own.is_current(index) or not own.has_tables(Build):
        return ""
    holders = {holder.name for holder in index.holders}
    rows = list(builds_of(index, own.using))
    own_ones = {row.build for row in rows if row.index in holders}
    # Those of other holders, unless they are retired.
    others = {row.build for row in rows if row.index not in holders} - {"", RETIRED}
    if not others and RETIRED not in own_ones and all(map(index.declares, own_ones)):
        return ""
    return (
        f"Index {index.name!r}: its build belongs to another release, and this one hasn't run migrate since. To "
        "replace that release by this one, run migrate or rebuild_zrank with this one. Otherwise stop its workers."
    )


def install(using: str, indexes: Collection[Index]) -> Changes:
    """Create the triggers that these indexes need in a database, and then drop those that no live build needs.

    Triggers in place stay untouched, without a lock on their tables. Tables that don't exist yet are skipped. Triggers
    that name a missing column are dropped, and all triggers if there is no table of marks. It never waits long for a
    lock, behind which all later writers would wait, and tries again for ``_PATIENCE`` seconds to create triggers. Those
    that it can't drop at once are left to the next process that checks. Raises
    :exc:`~django_zrank.exceptions.CaptureError`.
    """
    deadline = monotonic() + _PATIENCE
    while True:
        own = _triggers(using, indexes)
        if own is None:
            return Changes([], [])
        try:
            with own.dialect.short_lock_timeout():
                if not own.has_tables(Mark):
                    unwanted = sorted(own.found)
                    own.drop(unwanted)
                    return Changes([], unwanted)
                if own.has_tables(Capture):
                    own.take_over()
                dangling = own.dialect.dangling()
                own.drop(dangling)
                created, obstacles = own.add()
            return Changes(created, sorted({*dangling, *obstacles, *own.contract()}))
        except CaptureError as error:
            is_locked = isinstance(error.__cause__, DatabaseError) and is_delay(error.__cause__)
            if not is_locked or monotonic() >= deadline:
                raise
        sleep(_PAUSE)


def drop(using: str, names: Iterable[str] | None = None, *, dry_run: bool = False) -> Changes:
    """Drop the app's triggers in a database: all of them, or those of indexes with these names, without waiting long
    for a lock. ``dry_run``: only return them. Raises :exc:`~django_zrank.exceptions.CaptureError`."""
    owners = None if names is None else {owner_of(name) for name in names}
    own = _triggers(using)
    unwanted = (
        sorted(trigger for trigger in own.found if owners is None or trigger.owner in owners) if own else []
    )
    if own and unwanted and not dry_run:
        with nullcontext() if owners is None else own.dialect.short_lock_timeout():
            own.drop(unwanted)
    return Changes([], unwanted)


def renew(*, using: str, **kwargs: Any) -> None:
    """Install the triggers of the registered indexes after migrations."""
    install(using, [*captured(using), *sharing(using)])
