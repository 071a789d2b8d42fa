"""The two halves of a push, by themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django_zrank.queries.steps import drive
from django_zrank.store import Applied, Epoch, Store

__all__ = ["apply_changes", "begin_write"]


def begin_write(store: Store) -> Epoch:
    return drive(store.beginning_write(), store.send)


def apply_changes(store: Store, epoch: Epoch, changes: Iterable[Any]) -> Applied | None:
    return drive(store.applying_changes(epoch, changes), store.send)
