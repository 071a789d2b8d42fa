"""Signals, for logging and alerts. The sender is the index (an instance)."""

from __future__ import annotations

from django.dispatch import Signal

__all__ = ["drained", "drift_found", "push_failed", "pushed", "rebuilt", "repaired", "unranked"]

push_failed = Signal()
"""A push did not reach Redis. Arguments: ``error``, ``members`` (a set of primary keys)."""

pushed = Signal()
"""Members were written to Redis as the database has them, or removed: after a save, and again in the drain of its mark.
Argument: ``members``, a list of up to 1,000 primary keys. A rebuild and a score that begins in Redis don't send it."""

drained = Signal()
"""Waiting marks were processed. Arguments: ``marks`` and ``members``, their numbers."""

repaired = Signal()
"""The index was not healthy, and is being replayed or was rebuilt. Argument: ``verdict``, what was wrong."""

rebuilt = Signal()
"""The index was rebuilt. Argument: ``members``, their number."""

drift_found = Signal()
"""``verify_zrank`` found wrong members. Arguments: ``missing``, ``extra``, ``different``, their numbers."""

unranked = Signal()
"""Scores of members are about to change that Redis doesn't rank, though their rows may be ranked. Argument:
``members``, their primary keys; and ``touched``, those of members that are ranked, and seen now. A receiver of this app
writes when they were seen, and pushes ``members``."""
