"""Shown columns: values of a row that are kept with its member, and that entries have without a query."""
