"""The list of mutants that make no difference is that of this code."""

from __future__ import annotations

from tests.mutations.equivalent import EQUIVALENT
from tests.mutations.mutants import mutants


def test_every_mutant_that_makes_no_difference_can_be_made() -> None:
    assert EQUIVALENT.keys() <= {mutant.name for mutant in mutants()}
