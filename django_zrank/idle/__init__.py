"""Idle members: they leave the ranking if they were not seen for a while."""
