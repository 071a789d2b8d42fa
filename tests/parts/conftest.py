"""Fixtures of the parts' tests: those of the sync tests."""

from tests.sync.conftest import *  # noqa: F403
