"""Fixtures of the tests: an index of three members."""

from tests.lua.conftest import store  # noqa: F401
