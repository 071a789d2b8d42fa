"""Fixtures of the tests of shown columns: those of the sync tests."""

from tests.sync.conftest import *  # noqa: F403
