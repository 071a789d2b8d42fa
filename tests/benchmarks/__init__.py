"""Side-by-side measurements: ``python -m tests.benchmarks.<name>``. Nothing here is part of the test suite."""
