"""Stored members: the layout of an index in Redis, as its scripts need it, and primary keys as members.

A *stored member* is the tie bytes of :class:`~django_zrank.codec.order.Order`, then the primary key as text. It is in
the sorted set of the whole index and in those of its facets, with the same score in each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple

from django.db import models

from ..methods import Method, method_of
from .kinds import Kind, key_kind

__all__ = ["PLAIN", "Layout", "MemberCodec", "StoredMember", "without_attachment"]


class Layout(NamedTuple):
    width: int = 0
    """The number of tie bytes before every primary key. With 0, a stored member that begins with a NUL byte has 9,
    including the NUL: only integers beyond ±2**53 need them, and no primary key begins with NUL."""

    memberships: bool = False
    """True if a hash holds the *membership* of each member: its tie bytes, then its *attachment*, then the names of its
    facet rankings, sorted; the last two joined by NUL bytes. Members with none of these have no membership. An
    attachment is text that a part keeps with each member: it begins with a bracket, as no name does, and has no NUL."""

    beside: str = ""
    """The ranking method for which something is kept beside every ranking; '' for nothing."""

    @property
    def arguments(self) -> tuple[int, int]:
        """The arguments ``width`` and ``memberships`` of scripts."""
        return self.width, int(self.memberships)

    @property
    def keeper(self) -> Method:
        """That method; one that keeps nothing if there is none."""
        return method_of(self.beside or "ordinal")

    def split(self, stored: bytes) -> tuple[bytes, bytes]:
        """Return the tie bytes and the primary key of a stored member."""
        width = self.width or (9 if self.memberships and stored[:1] == b"\0" else 0)
        return stored[:width], stored[width:]

    def names_of(self, membership: bytes) -> bytes:
        """Return the names of the facet rankings in a membership, joined by NUL bytes."""
        return without_attachment(self.split(membership)[1])

    def attachment_of(self, membership: bytes) -> bytes:
        """Return the attachment in a membership; nothing if it has none."""
        if membership[:1] != b"[" or self.width:
            membership = self.split(membership)[1]
        return membership.partition(b"\0")[0] if membership[:1] == b"[" else b""


def without_attachment(names: bytes) -> bytes:
    """Return what a membership says after its tie bytes and its attachment."""
    return names.partition(b"\0")[2] if names[:1] == b"[" else names


class StoredMember(bytes):
    """A stored member of an answer, with its attachment."""

    attachment: bytes = b""


PLAIN: Final = Layout()
"""A sorted set of bare primary keys, and nothing else."""


class MemberCodec:
    """The primary keys of a model, as Redis stores them."""

    model: Any

    @cached_property
    def _pk(self) -> Any:
        return self.model._meta.pk

    @cached_property
    def _key(self) -> Kind:
        """The kind of primary keys. Raises ``ImproperlyConfigured`` if they have no unique text."""
        return key_kind(self._pk)

    @cached_property
    def pk_type(self) -> type | None:
        """The type whose every value is a primary key, if there is one. Cached: a rebuild asks a million times."""
        return self._key.exact

    @cached_property
    def has_integer_pk(self) -> bool:
        """True if primary keys are plain integers, whose text ``int()`` parses."""
        return self.pk_type is int

    def to_text(self, member: Any, parameter: str = "member") -> str:
        """Return a member, given as an instance or a primary key, as the text that Redis stores.

        Raises ``ValueError``, naming the ``parameter``.
        """
        try:
            if type(member) is self.pk_type:
                return str(member)
            if isinstance(member, models.Model):
                is_ours = isinstance(member, self.model._meta.concrete_model)
                pk = getattr(member, self._pk.attname) if is_ours else None
                if pk is None:
                    raise ValueError(f"{member!r} is not a saved {self.model._meta.label}")
                return str(self.from_text(pk))
            return str(self.parse_pk(member))
        except ValueError as error:
            raise ValueError(f"{parameter}: {error}") from None

    def parse_pk(self, text: Any) -> Any:
        """Parse a primary key of the model. Raises ``ValueError``."""
        try:
            return self.from_text(self._key.parse_input(text))
        except ValueError as error:
            raise ValueError(f"expected a primary key of {self.model._meta.label}; {error}") from None

    @cached_property
    def from_text(self) -> Callable[[Any], Any]:
        """A function from a primary key, or its text as the database casts it, to the key as Django reads it, whose
        ``str()`` is the member. It raises ``ValueError`` for what can't be a member's key."""
        parse = self._key.parse
        if not self._key.is_text:
            return parse

        def parse_text(text: Any) -> Any:
            text = parse(text)
            if "\0" in text:  # it separates the parts of a membership
                raise ValueError("text with a NUL byte can't be a member")
            return text

        return parse_text

    @cached_property
    def from_bytes(self) -> Callable[[bytes], Any]:
        """A function from a member, as Redis stores it, to its primary key."""
        if self.has_integer_pk:
            return int
        parse = self._key.parse
        return lambda member: parse(member.decode())
