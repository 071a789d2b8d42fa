#!/usr/bin/env python
"""The example's command line: ``python example_project/manage.py demo``."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "arena.settings")
    execute_from_command_line(sys.argv)
