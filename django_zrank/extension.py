"""Hooks by which parts attach to the kernel, which names none of them: ``index.py`` lists them.

What a part adds to a declaration is a base class of ``RankIndex``, which overrides ``further_conditions()`` and the
methods beside it. What it adds to the mirror is an :class:`Extension`: one object for all indexes. Parts that only take
the place of something are functions.

All are named by dotted paths, and imported when they are called: a project doesn't load what it doesn't use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar

from django.db.models import Q
from django.utils.module_loading import import_string

from .conf import get_settings
from .declaration import Index

if TYPE_CHECKING:
    from django.core.checks import CheckMessage

    from .models import Build
    from .queries.request import Call
    from .queries.steps import Steps
    from .redis.keys import Keys
    from .store import Health, Store

__all__ = [
    "Extension",
    "Fallback",
    "Preceding",
    "Source",
    "avoided",
    "avoided_by",
    "companions",
    "declared",
    "divisible",
    "extensions",
    "fallback",
    "fallbacks",
    "installed",
    "narrowing",
    "own_keys",
    "settings",
    "sources",
    "tables",
    "timed",
    "written",
]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
AnyIndex = TypeVar("AnyIndex", bound=Index[Any])

extensions: Final[dict[str, str]] = {}
"""The dotted paths of the extensions, by the attribute with which an index declares each. They are called in this
order."""


class Preceding(NamedTuple):
    """A text of a part that precedes a script of the kernel."""

    package: str
    """The package in whose ``lua/before`` it is, under the name of the script."""

    keys: Sequence[str] = ()
    arguments: Sequence[Any] = ()
    """The keys and arguments that follow those of the script. The text removes its arguments, which are the last, and
    leaves those of later texts, which come before."""


class Extension(Generic[AnyIndex]):
    """A part, for all indexes. By default, every hook does nothing. Most are called for indexes that don't declare the
    part, too: an earlier release may have."""

    needs: Sequence[str] = ()
    """The attributes of an index that must be right for :meth:`check` to run."""

    def is_declared(self, index: AnyIndex) -> bool:
        """Return True if an index declares it."""
        return False

    def check(self, index: AnyIndex) -> Iterator[CheckMessage]:
        """Check the declaration, without a query."""
        yield from ()

    # Rows on their way to Redis, of an index that declares it

    is_timed: ClassVar[bool] = False
    """True if it depends on the time which rows are ranked."""

    def before_rows(self, index: AnyIndex) -> Any:
        """Return what :meth:`removing` needs of the time before the rows of a push are read. Not called for a save,
        which doesn't wait for it."""

    def removing(self, index: AnyIndex, before: Any) -> Callable[[Store], Any] | None:
        """Return a function that is called with the store of each holder from which a push is about to remove members;
        None for none. ``before``: what :meth:`before_rows` returned; None if it wasn't called. Called if the index is
        timed."""

    def column(self, holder: AnyIndex) -> Any:
        """Return an expression that is read with every row, in the same statement; None for none.
        ``holder``: the index, or one of its holders."""

    def before_write(self, script: str, holder: AnyIndex, keys: Keys, noted: Any) -> Preceding | None:
        """Return what precedes ``apply_changes`` or ``load_rows``. ``noted``: the value of :meth:`column` in the last
        of the rows that are written; None if there was none."""

    # What Redis holds, of any index

    def before_check(self, script: str, keys: Keys) -> Preceding | None:
        """Return what precedes ``check_health`` or ``start_rebuild``: it tells if keys of this part are missing."""

    def building(self, index: AnyIndex) -> Mapping[str, Any]:
        """Return fields of ``meta``, with their values, that belong to a build whose rows are about to be read. A build
        without a value (None) has no such field."""
        return {}

    def replacing(self, index: AnyIndex) -> None:
        """Called before a build of an index begins, and before it lists the marks that it covers."""

    def replaced(self, index: AnyIndex) -> None:
        """Called once builds of all that holds its members are live, and again when the index is found healthy."""

    def discarding(self, index: AnyIndex) -> None:
        """Give up the changes that are stranded (see :meth:`is_stranded`) in what is no holder of the index any more.
        Called before :meth:`replaced`, if somebody who rebuilds the index wants that."""

    # Upkeep

    every: ClassVar[float] = inf
    """The seconds after which a worker calls :meth:`work` again, if ``FLUSH_EVERY`` isn't less."""

    def work(self, index: AnyIndex, *, limit: int | None, patience: float, skip_locked: bool) -> int:
        """Do what is due, for about ``limit`` members, or for all. Return their number.

        ``patience``: seconds for which to wait for locks. ``skip_locked``: leave locked rows for the next time, instead
        of raising :exc:`~django_zrank.exceptions.Busy` at the end."""
        return 0

    def report(self, members: int) -> str:
        """Return what ``sync_zrank`` says after work on so many members."""
        return ""

    # What began in Redis, and is on its way to the database

    def waiting(self, store: Store) -> tuple[int, float]:
        """Return the number of members with changes on their way, and the age of the oldest in seconds."""
        return 0, 0.0

    def bring(self, holder: AnyIndex) -> None:
        """Write these changes to the database, without the locked rows."""

    def is_stranded(self, holder: AnyIndex, store: Store) -> bool:
        """Return True if there are changes that this release can't write to the database, and never will."""
        return False

    def state(self, keys: Keys, members: Sequence[bytes]) -> list[Call]:
        """Return calls that show if changes of members are on their way."""
        return []

    def settled(self, replies: Sequence[Any], members: int) -> list[Any]:
        """Return for each of so many members, from the replies to :meth:`state`, a value that is another one later if
        changes were on their way in between; None if any are."""
        return [()] * members

    def holds(self, store: Store, member: str) -> bool:
        """Return True if a change of a member is on its way."""
        return False

    def removal(self, keys: Keys, key: str, member: str) -> Call | None:
        """Return the call that removes a member from a key, or the key, and returns the number of removals; None if it
        is no key of this part, or holds no members."""

    def expiring(self) -> Mapping[str, tuple[str, float]]:
        """Return the kinds of keys that may hold a member until they expire: what to call them, and after how many
        seconds they do."""
        return {}

    # Another server

    def is_behind(self, holder: AnyIndex, store: Store) -> bool:
        """Return True if the database has lost what it had noted of changes in Redis. A new term must begin then."""
        return False

    def trusting(self, holder: AnyIndex, health: Health, *, everything: bool) -> bool:
        """Called before a server is trusted under a new term. ``everything``: more was lost than is kept. Return False
        if the server has changed since it was found like this."""
        return True

    def lacks(self, row: Build, health: Health) -> bool:
        """Return True if a server lacks changes of this part that the database has noted under the server's term."""
        return False

    def own_batches(self) -> Q | None:
        """Return the condition of the batches of this part. A replay keeps them: the next server may lack them, too."""

    def lacked_batches(self, health: Health) -> Q:
        """Return the condition of those of :meth:`own_batches` that a server lacks, under its own term."""
        return Q()

    # Changes that begin in Redis

    def rouse(self, index: AnyIndex, pks: Sequence[Any]) -> list[Any]:
        """Change the rows of members that are active, and about to be pushed, so that they are ranked. Return the keys
        of those whose rows are locked."""
        return []

    def changed(self, index: AnyIndex, members: Sequence[str]) -> Steps[None]:
        """The steps that follow a change of scores of members in Redis. An error is logged."""
        yield from ()


@cache
def installed() -> Mapping[str, Extension[Any]]:
    """Return the extensions by their names."""
    return {name: import_string(path)() for name, path in extensions.items()}


@cache
def declared(index: Index) -> Mapping[str, Extension[Any]]:
    """Return the extensions that an index declares, by their names."""
    return {name: one for name, one in installed().items() if one.is_declared(index)}


@cache
def timed(index: Index) -> Sequence[Extension[Any]]:
    """Return the extensions for which it depends on the time which rows of an index are ranked."""
    return [one for one in declared(index).values() if one.is_timed]


# What takes the place of something


class Fallback(NamedTuple):
    """Answers questions about a ranking that Redis can't be trusted to answer."""

    function: str
    """The dotted path of a function of an index, the conditions, a question and a view. It returns the answer, or
    raises :exc:`~django_zrank.IndexUnavailable`."""

    label: str
    """The state that the health view shows for an index that is answered by it."""

    def answer(self, *args: Any) -> Any:
        """Call the function."""
        return import_string(self.function)(*args)


fallbacks: Final[dict[str, Fallback]] = {}
"""The fallbacks by the values of ``ZRANK["UNHEALTHY"]`` that choose them."""


class Source(NamedTuple):
    """Servers that rankings are read from in place of the primary."""

    function: str
    """The dotted path of a function of a :class:`~django_zrank.redis.reader.Reader`, of a function that returns
    the steps, given the live keys, and of a view. It returns the steps to the answer."""

    check: str
    """The dotted path of a system check, if ``ZRANK["READS"]`` chooses them: a function of the alias in ``CACHES`` and
    its entry there."""

    def asking(self, *args: Any) -> Any:
        """Call the function."""
        return import_string(self.function)(*args)


sources: Final[dict[str, Source]] = {}
"""The sources by the values of ``ZRANK["READS"]`` and the arguments of ``using()`` that choose them; without
"primary"."""

written: Final[list[Callable[[Any, tuple[int, int]], None]]] = []
"""Functions that are called after a write of this process: with the :class:`~django_zrank.redis.keys.Keys` of the
build that was written to, and with the term and the version of the write."""

settings: Final[dict[str, str]] = {}
"""The dotted paths of the classes of further keys of ``ZRANK``, each like :class:`~django_zrank.conf.Settings`, by the
part that reads them."""

companions: Final[dict[str, str]] = {}
"""The dotted paths of functions that return a context manager, entered while ``sync_zrank --watch`` runs, by the app
that has to be installed. Arguments: the indexes, and the event that ends the worker."""


tables: Final[dict[str, str]] = {}
"""The dotted paths of modules of further models, by the part. They are loaded with the app's own."""

narrowing: Final[list[str]] = []
"""The dotted path of a function of an index, a view and conditions: it returns the view of the members that meet the
conditions, for which there is no ranking. It raises ``ValueError``."""


avoided: Final[dict[str, str]] = {}
"""The dotted paths of functions of the value of a parameter of ``recommend()``, by its name: they return the members
that a draw avoids (:class:`~django_zrank.queries.draws.Avoiding`), or raise ``ValueError``."""


def avoided_by(parameter: str, value: Any) -> Any:
    """Return the members that a draw avoids with this value of a parameter. Raises ``ValueError``."""
    if parameter not in avoided:
        raise ValueError(f"{parameter}: no part has this parameter")
    return import_string(avoided[parameter])(value)


own_keys: Final[list[str]] = []
"""The kinds of keys (:meth:`~django_zrank.redis.keys.Keys.beside`) that a part keeps for a single member, whose primary
key is in their names. They go when it leaves."""


def divisible(
    function: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate[Any, Arguments], Result]:
    """Let a part take the place of a function of an index that holds its members itself: for an index that has a
    ``division``, the function of the same name in that module is called. These are ``draining``, in
    ``sync/drain.py``, and ``building``, in ``sync/rebuild.py``."""

    @wraps(function)
    def call(index: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if index.division:
            return import_string(f"{index.division}.{function.__name__}")(index, *args, **kwargs)  # type: ignore[no-any-return]
        return function(index, *args, **kwargs)

    return call


def fallback() -> Fallback | None:
    """Return the fallback that the settings choose."""
    return fallbacks.get(get_settings().unhealthy)
