"""Mutants that no test notices, and why none has to."""

from __future__ import annotations

from typing import Final

__all__ = ["EQUIVALENT"]

_SPEED: Final = "What follows does the same, and takes longer."

EQUIVALENT: Final[dict[str, str]] = {
    "push.py forget: without `builds.forget(index)`": (
        "A note that was read before the build disagrees with it, and is read again."
    ),
    "push.py Push.apply: without `return []`": "A function that ends returns None, and no members are left.",
    "drain.py Drain.expand: without `unknown` in `unknown and (not examine_capture(index).is_complete)`": (
        "Without such marks, none is left for the sake of them."
    ),
    "flush.py write_scores: True in place of `flight.rule != column.noted`": (
        "The column of the same rule is the same."
    ),
    "flush.py _carry: without `return None`": "A function that ends returns None.",
    "flush.py _Writing.is_refusal: without `isinstance(error, (DataError, IntegrityError))` in"
    " `isinstance(error, (DataError, IntegrityError)) or self.can_write()`": (
        "The probe finds that other writes succeed."
    ),
    **dict.fromkeys(
        (
            "flush.py reconcile: without `return True`",
            "flush.py reconcile: False in place of `index.column is None and (not any(store.read_meta('rule')))`",
        ),
        "Nothing is pending, and no flush in flight. What follows notes numbers that nothing reads, and takes longer.",
    ),
    "flush.py _Statements.run: True in place of `wanted or not self.members`": (
        "The statement updates no row, and takes longer."
    ),
    "take_pending.lua take_pending: without `kept <= taken` in"
    " `while not is_building and kept <= taken and number - kept >= few do`": (
        "It follows from the other condition, unless a server lacks many flushes. Then it bounds the loop."
    ),
    "take_pending.lua take_pending: false in place of `redis.call('HLEN', pending) <= limit`": _SPEED,
    "reconcile_pending.lua reconcile_pending: without `return 'done'`": "Its caller goes on in any case.",
    "change_scores.lua change_scores: true in place of `memberships`": "The key is missing.",
    "increment_scores.lua increment_scores: true in place of `math.abs(by) > EXACT - math.max(highest, -lowest)`": (
        _SPEED
    ),
    **dict.fromkeys(
        (
            f"increment_scores.lua increment_scores: {what}"
            for what in (
                "true in place of `before and (by > 0 and by > highest - before or by < 0 and by < lowest - before)`",
                "true in place of `after > highest and by > 0 or after < lowest and by < 0`",
                "without `after > highest` in `if after > highest and by > 0 or after < lowest and by < 0 then`",
                "without `by > 0` in `if after > highest and by > 0 or after < lowest and by < 0 then`",
                "without `by < 0` in `if after > highest and by > 0 or after < lowest and by < 0 then`",
                "false in place of `is_one`",
                (
                    "false in place of `state[1] == build and not state[2] and state[4] == rule and ago <= 1000 "
                    "and ago >= -1000\n    and redis.call('EXISTS', pending) == 1`"
                ),
            )
        ),
        _SPEED,
    ),
    "increment_scores.lua increment_scores: without `state[1] == build` in `if state[1] == build and not"
    " state[2] and state[4] == rule and ago <= 1000 and ago >= -1000 and redis.call('EXISTS', pending) == 1 then`": (
        "The root of a former build is gone, so its member isn't found, and the build is compared later."
    ),
    "writable.lua lib/writable: true in place of `live ~= build`": "They are compared once more.",
    "writable.lua lib/writable: true in place of `math.abs(now - (identified or 0)) > 1000`": _SPEED,
    "sums.lua lib/sums: false in place of"
    " `math.abs(held) < EXACT and math.abs(change) < EXACT and math.abs(sum) < EXACT`": _SPEED,
}
"""By mutant: the reason."""
