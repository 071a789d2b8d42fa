"""What every benchmark begins with: its options, and Django."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import django

__all__ = ["options_parser", "set_up"]


def options_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser of the options of a benchmark, which has ``--json``."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the figures here, too.")
    return parser


def set_up() -> None:
    """Set up Django, by default with the settings of the tests."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
