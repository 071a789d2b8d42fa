"""Verifications and rebuilds that somebody has requested, and that the worker carries out."""
