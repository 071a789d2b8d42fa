"""The flush of write-behind, under the name that projects import."""

from ..write_behind.flush import flush

__all__ = ["flush"]
