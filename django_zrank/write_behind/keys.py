"""Names of the keys of pending changes."""

from __future__ import annotations

from hashlib import sha256

from ..redis.keys import Keys

__all__ = ["carried_key", "once_key", "pending_key"]


def pending_key(keys: Keys) -> str:
    """Hash: member -> its change, in units, that no flush has taken yet."""
    return f"{keys.tag}:pending"


def carried_key(keys: Keys, flush: int) -> str:
    """Hash: member -> its change, of those in a flush; kept for a few flushes. Scripts derive the name from
    ``pending``."""
    return f"{pending_key(keys)}:{flush}"


def once_key(keys: Keys, key: str) -> str:
    """Text, for a while: the changes made under an idempotency key; its name contains a digest of that key."""
    return f"{keys.tag}:once:{sha256(key.encode()).hexdigest()[:32]}"
