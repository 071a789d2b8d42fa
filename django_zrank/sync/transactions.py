"""Open transactions, and their meaning in a ``TestCase``."""

from __future__ import annotations

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["belongs_to", "is_open", "refuse_transaction"]


def refuse_transaction(connection: BaseDatabaseWrapper, what: str) -> None:
    """Raise ``TransactionManagementError`` inside a transaction.

    Its snapshot may be older than what others have written, and what it reads of its own may be rolled back.
    """
    if connection.in_atomic_block or not connection.get_autocommit():
        raise transaction.TransactionManagementError(f"{what} can't be done inside a transaction.")


def is_open(connection: BaseDatabaseWrapper) -> bool:
    """Return True inside a transaction, for which the outer blocks of a ``TestCase`` don't count."""
    if connection.in_atomic_block:
        return not all(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)
    return not connection.get_autocommit()


def belongs_to(connection: BaseDatabaseWrapper, savepoints: set[str]) -> bool:
    """Return True if a commit hook that was registered under ``savepoints`` belongs to the open transaction.

    It always does, except in a ``TestCase``, whose outer blocks stand for autocommit: each save there is a transaction
    of its own, as ``captureOnCommitCallbacks()`` expects.
    """
    blocks = connection.atomic_blocks
    outer = sum(getattr(block, "_from_testcase", False) for block in blocks)
    if not outer:
        return True
    if outer == len(blocks):
        return False
    savepoint = connection.savepoint_ids[outer - 1]  # None for atomic(savepoint=False)
    return savepoint is not None and savepoint in savepoints
