"""PostgreSQL's triggers tell a connection which asks for it that one of its statements has left marks. So a save knows
whether anything was marked, without a query.

The message comes with the reply to the statement. A ``NOTIFY`` would come with it, too, but serialize all commits.
Sessions that haven't set ``zrank.tells`` get none.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["TELL", "Heard", "heard", "last_taken", "listen", "take"]

TELL: Final = (
    # Once for each statement, whatever the number of triggers that it runs.
    "IF FOUND AND current_setting('zrank.tells', true) NOT IN ('', statement_timestamp()::text) THEN"
    " RAISE INFO 'zrank'; PERFORM set_config('zrank.tells', statement_timestamp()::text, true); END IF"
)
"""PL/pgSQL that tells that the statement before has left marks."""


class _Listener:
    """The messages to one connection of the driver."""

    def __init__(self) -> None:
        self.was_asked = False
        """True if the triggers were asked to tell."""

        self.is_told = False
        """True if they do."""

        self.heard = 0
        """The number of messages."""

        self.taken = 0
        """The number of those that a push has asked about."""

    def __call__(self, message: Any) -> None:
        self.heard += message.message_primary == "zrank"


_listeners: WeakKeyDictionary[Any, _Listener] = WeakKeyDictionary()
"""By the driver's connections."""


class Heard(NamedTuple):
    """The number of messages that a listener had got at some time."""

    listener: _Listener
    number: int


def _listener(connection: BaseDatabaseWrapper) -> _Listener | None:
    """Return what listens to this connection; None if nobody would tell it anything."""
    driver: Any = connection.connection
    if connection.vendor != "postgresql" or driver is None:
        return None
    listener = _listeners.get(driver)
    return listener if listener is not None and listener.is_told else None


def heard(connection: BaseDatabaseWrapper) -> Heard | None:
    """Return what this connection has heard until now; None if nobody would have told."""
    listener = _listener(connection)
    return None if listener is None else Heard(listener, listener.heard)


def last_taken(connection: BaseDatabaseWrapper, before: Heard | None) -> Heard | None:
    """Return what this connection had heard when :func:`take` was last called, or ``before`` if that was earlier:
    others may call it inside a save. None if nobody would have told."""
    listener = _listener(connection)
    if listener is None:
        return None
    return Heard(listener, listener.taken if before is None else min(listener.taken, before.number))


def take(connection: BaseDatabaseWrapper, since: Heard | None) -> bool | None:
    """Return True if statements of this connection have left marks since then, False if they have left none; None if
    nobody would have told."""
    listener = _listener(connection)
    if listener is None:
        return None
    listener.taken = listener.heard
    return listener.heard > since.number if since is not None and since.listener is listener else None


def listen(connection: BaseDatabaseWrapper) -> None:
    """Have the triggers tell this connection from now on, if it does so a second time: many serve one request only.

    Not behind a pooler, which may lead each transaction to another session, nor in a transaction, or with autocommit
    off: a rollback would take the setting back, and silence would pass for "no marks"."""
    driver: Any = connection.connection
    # Psycopg 3 itself. What a pool lends in its place is a new object each time, and handlers stay with the session.
    kind: Any = getattr(connection, "Database", None)
    is_able = connection.vendor == "postgresql" and isinstance(driver, getattr(kind, "Connection", ()))
    if not is_able or connection.in_atomic_block or not connection.get_autocommit():
        return
    listener = _listeners.get(driver)
    if listener is None:
        _listeners[driver] = _Listener()
    elif not listener.was_asked:
        listener.was_asked = True
        pool = connection.settings_dict["OPTIONS"].get("pool")
        if isinstance(pool, dict) and "reset" in pool:  # perhaps RESET ALL
            return
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('zrank.tells', 'on', false) WHERE pg_backend_pid() = %s",
                [driver.info.backend_pid],
            )
            listener.is_told = cursor.fetchone() is not None
        if listener.is_told:
            driver.add_notice_handler(listener)
