"""Deletes parts from a copy of the checkout, and runs what is left: ``python -m tests.without_parts``."""
