"""Signals, for logging and alerts. The sender is the index (an instance)."""

from __future__ import annotations

from django.dispatch import Signal

__all__ = ["drained", "drift_found", "push_failed", "pushed", "rebuilt", "repaired"]

push_failed = Signal()
"""Sent when a push did not reach Redis. Arguments: ``error``, and ``members``, a set of primary keys."""

pushed = Signal()
"""Sent after members were written to Redis, or removed, as the database has them: after a save that has changed what
the index reads, and again when its mark is drained. Argument: ``members``, a list of up to 1,000 primary keys.
Rebuilds, and changes that begin in Redis, don't send it."""

drained = Signal()
"""Sent after waiting marks were processed. Arguments: ``marks`` and ``members``, the numbers of both."""

repaired = Signal()
"""Sent when an index that wasn't healthy is being replayed, or was rebuilt. Argument: ``status``, what was wrong."""

rebuilt = Signal()
"""Sent after the index was rebuilt. Argument: ``members``, the number of members."""

drift_found = Signal()
"""Sent when ``verify_zrank`` has found wrong members. Arguments: ``missing``, ``extra`` and ``different``, the numbers
of these."""
