"""Everything that talks to Redis. The client is loaded when an index is first read or written, not by a declaration."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from django.core.cache import caches
from django.utils.module_loading import import_string

from ..conf import get_settings, key_prefix
from ..declaration import Index

if TYPE_CHECKING:
    from .reader import Reader

__all__ = ["areader_of", "reader_of"]


def reader_of(index: Index) -> Reader:
    """Return the reader that answers questions about an index from Redis: under each prefix of keys, another one."""
    return _reader_of(index, key_prefix())


@cache
def _reader_of(index: Index, prefix: str) -> Reader:
    reader: Reader = import_string(index.reader)(index)
    return reader


_is_loaded = False
"""True once a coroutine needs no thread to load the client."""


def _load(index: Index) -> None:
    reader_of(index)
    with suppress(Exception):  # the call itself will raise it
        cache: Any = caches[get_settings().redis_alias]
        vars(cache.client)  # django-redis loads this late, too


async def areader_of(index: Index) -> Reader:
    """Return the same in a coroutine. At first, a thread loads the client: this would block the event loop."""
    global _is_loaded
    if not _is_loaded:
        await asyncio.to_thread(_load, index)
        _is_loaded = True
    return reader_of(index)
