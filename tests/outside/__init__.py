"""Tests from outside: by commands, HTTP, SQL, redis-cli and the public API alone. What is inside may be rebuilt beneath
them; ``tests/test_structure.py`` sees to it that no private name is imported or patched here."""
