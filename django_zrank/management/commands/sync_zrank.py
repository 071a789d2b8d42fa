"""``manage.py sync_zrank``: process the marks that wait."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Final

from django.apps import apps
from django.core.management.base import CommandError, CommandParser
from django.utils.module_loading import import_string

from ...declaration import Index
from ...exceptions import ZRankError
from ...extension import companions
from ...sync.health import Status, examine, obstacle
from ...sync.watch import Synced, sync, watch
from ..base import IndexCommand

logger = logging.getLogger("django_zrank.sync")

_INTERVALS: Final = (0.001, 3600)
"""The least and the most seconds between two polls."""


class Command(IndexCommand):
    help = "Applies waiting changes to Redis, and repairs indexes that aren't healthy. With --watch, it is the worker."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--watch", action="store_true", help="Keep running until SIGTERM or SIGINT.")
        parser.add_argument(
            "--interval",
            type=float,
            default=0.5,
            help="With --watch: seconds between polls while nothing changes, up to 3,600. Default: 0.5.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.require_between("--interval", options["interval"], *_INTERVALS)
        indexes = self.named(options["index"])
        if indexes and options["watch"]:
            with set_by_signals(signal.SIGTERM, signal.SIGINT) as stop, ExitStack() as beside:
                for app, running in companions.items():
                    if apps.is_installed(app):
                        beside.enter_context(import_string(running)(indexes, stop))
                watch(indexes, interval=options["interval"], stop=stop, report=self.report)
            return
        failed = False
        for index in indexes:
            try:
                self.report(index, sync(index))
                status = examine(index)
                if status is not Status.HEALTHY:
                    reason = obstacle(index, status)
                    self.stderr.write(f"{index.name}: {status.value}{f'. {reason}' if reason else ''}")
                    failed = True
            except ZRankError as error:
                self.stderr.write(str(error))
                failed = True
            except Exception as error:
                logger.exception("Index %r is not up to date", index.name)
                self.stderr.write(f"{index.name}: {type(error).__name__}: {error}")
                failed = True
        if failed:
            raise CommandError("Not every index is up to date.")

    def report(self, index: Index, done: Synced) -> None:
        self.say(f"{index.name}: {done}")


@contextmanager
def set_by_signals(*numbers: int) -> Iterator[Event]:
    """Return an event that each of these signals sets."""
    # A handler may interrupt the main thread within wait(), which holds the lock that set() takes, or within start() or
    # join() of a thread, which hold the locks that another start() takes: the process would hang. SimpleQueue.put() is
    # reentrant.
    received: SimpleQueue[int | None] = SimpleQueue()
    event = Event()

    def pass_on() -> None:
        while received.get() is not None:
            event.set()

    thread = Thread(target=pass_on, name="zrank-signals")
    thread.start()
    before = {number: signal.signal(number, lambda number, _: received.put(number)) for number in numbers}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        received.put(None)
        thread.join()
