"""Rows to what a sorted set stores, and back: a score, and bytes that break ties. Pure functions, no I/O.

A sorted set holds its scores as doubles, and orders members of one score by their bytes. Every value below maps
onto an integer of 64 bits, its *units*, in whose order the database has it: microseconds, days, the last place of
a decimal. The units of the first criterion are the score, as far as doubles hold them (±2**53), so that the
arithmetic of a band (my score minus ten) is exact, its ends included. What doubles don't hold, and the units of
all further criteria, go into *tie bytes*, which stand before the primary key and compare as the units do.

The last tie-break is the primary key as text, byte for byte: "10" stands before "9". All of it is read in reverse
where the first criterion descends.
"""
