"""Django signals for the project: to log, count and alert. The sender is always the index (an instance)."""

from __future__ import annotations

from django.dispatch import Signal

__all__ = ["drained", "drift_found", "push_failed", "rebuilt", "repaired", "unranked"]

push_failed = Signal()
"""A push did not reach Redis. Arguments: ``error``, ``members`` (a set of primary keys)."""

drained = Signal()
"""Waiting marks were worked off. Arguments: ``marks`` and ``members``, how many."""

repaired = Signal()
"""The index was not healthy, and is being replayed or was rebuilt. Argument: ``verdict``, what was wrong."""

rebuilt = Signal()
"""The index was rebuilt. Argument: ``members``, how many."""

drift_found = Signal()
"""``verify_zrank`` found members that are wrong. Arguments: ``missing``, ``extra``, ``different``, how many."""

unranked = Signal()
"""Scores of members that aren't ranked are changed, though their rows may be ranked. Argument: ``members``, their
primary keys. They are pushed, and looked for once more."""
