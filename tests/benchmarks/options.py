"""What every benchmark begins with: its options, and Django."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import django

__all__ = ["parse_options", "set_up"]


def parse_options(description: str | None, **defaults: Any) -> argparse.Namespace:
    """The options of a benchmark, by their defaults, which tell their types; a type alone is that of an option without
    a default, and a tuple has several numbers. Every benchmark has ``--json``, a file for its figures."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (defaults | {"json": Path}).items():
        option = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(option, action="store_true")
        elif isinstance(default, type):
            parser.add_argument(option, type=default)
        elif isinstance(default, tuple):
            parser.add_argument(option, type=_numbers, default=default, metavar="N,N,…")
        else:
            parser.add_argument(option, type=type(default), default=default)
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def set_up() -> None:
    """Set up Django, by default with the settings of the tests."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
