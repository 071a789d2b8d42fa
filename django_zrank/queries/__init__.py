"""Requests to Redis, as values: one module a family of verbs. Pure, no I/O."""
