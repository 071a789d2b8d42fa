"""Capture: changes of rows become marks, in the transactions of the changes. Triggers, on each database."""
