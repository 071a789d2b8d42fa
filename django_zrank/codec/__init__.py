"""Convert rows to what a sorted set stores (a score, and bytes that break ties) and back. Pure functions, no I/O.

A sorted set holds scores as doubles, and orders members with equal scores by their bytes. Every value maps to a
64-bit integer, its *units*, which sorts as the database sorts the value: microseconds, days, the last place of a
decimal. The units of the first criterion are the score if a double holds them exactly (±2**53), so the arithmetic of
a band (my score minus ten) is exact. Larger units, and those of further criteria, are packed into *tie bytes*: a
prefix of the primary key that sorts as the units do.

The last tie-break is the primary key as text, byte by byte: "10" sorts before "9". If the first criterion descends,
everything is read in reverse.
"""
