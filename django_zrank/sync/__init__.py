"""Keeping the mirror right: what is pushed after a commit, and what is rebuilt."""
