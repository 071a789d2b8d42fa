"""The ``ZRANK`` setting."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from django_zrank.conf import Settings, get_settings
from django_zrank.store import Change, Store
from tests.builds import load_rows, start


def test_every_key_has_a_default(settings: Any) -> None:
    for missing in ({}, ...):
        if missing is ...:
            del settings.ZRANK
        else:
            settings.ZRANK = missing
        found = get_settings()
        assert found == Settings()
        assert (found.redis_alias, found.key_prefix, found.default_index) == ("zrank", "zrank", None)
        assert (found.max_n, found.retry_after, found.auto_sync) == (500, 5.0, True)


def test_override_settings_is_honoured_and_ends() -> None:
    before = get_settings()
    with override_settings(ZRANK={"MAX_N": 7, "KEY_PREFIX": "app"}):
        assert get_settings().max_n == 7
        assert get_settings().retry_after == 5.0
        with override_settings(ZRANK={}):
            assert get_settings() == Settings()
        assert get_settings().max_n == 7
    assert get_settings() == before


def test_settings_are_read_once_and_stay(settings: Any) -> None:
    settings.ZRANK = {"NONSENSE": 1, "MAX_N": 7}  # which is left to the checks
    assert get_settings() == Settings(max_n=7)
    assert get_settings() is get_settings()
    with pytest.raises(AttributeError):
        get_settings().max_n = 7  # type: ignore[misc]


def test_the_prefix_is_what_every_key_begins_with(settings: Any) -> None:
    settings.ZRANK = {"KEY_PREFIX": "my:app"}
    keys = Store("player").keys.at("b")
    each = (
        keys.meta,
        keys.recent,
        keys.doomed,
        keys.root,
        keys.ranking("x:y"),
        keys.beside("group", "g"),
    )
    assert {key.split("{")[0] for key in each} == {"my:app:"}


def test_two_prefixes_are_two_indexes(zrank: Any, settings: Any) -> None:
    settings.ZRANK = {"KEY_PREFIX": "staging"}
    store = Store("player")
    start(store, "first")
    load_rows(store, "first", [Change("1", 5)])
    store.swap_rebuilt("first")
    assert store.size() == 1
    settings.ZRANK = {}
    assert store.size() == 0


def test_the_alias_says_which_server(zrank: Any, settings: Any) -> None:
    cache = settings.CACHES["zrank"]
    settings.CACHES = {**settings.CACHES, "ranks": {**cache, "LOCATION": cache["LOCATION"][:-1] + "5"}}
    settings.ZRANK = {"REDIS_ALIAS": "ranks"}
    start(Store("player"), "first")
    Store("player").swap_rebuilt("first")
    assert Store("player").client.keys() == [b"zrank:{player}:meta"]
    assert Store("player").client is not zrank
