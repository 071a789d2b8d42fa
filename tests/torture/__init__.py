"""The proof that the mirror is right, by killing things.

``python -m tests.torture --database postgresql --seconds 600 --kills 1000``

Real processes write, push, drain and rebuild. They, Redis, connections and the database server are killed at
random. After each round all of Redis is compared with all of the database. The servers are the driver's own;
a database server is the suite's where ``ZRANK_TEST_DATABASE_HOST`` names one, and is not killed then.

- ``options.py``   what can be asked of a run
- ``driver.py``    what happens when: rounds, kills, the comparison
- ``processes.py`` the victims: processes that can be started, paused and killed
- ``clients.py``   which server a process knows
- ``databases.py`` the databases, and what can be done to them
- ``schema.py``    migrations that fail, triggers that are dropped, tables that are restored, locks, another release
- ``single.py``    one Redis, that comes back with what it held earlier
- ``pair.py``      two, failed over by hand: fast, back and forth, with writes on both sides
- ``watched.py``   two with three Sentinels: partitions, frozen servers and Sentinels
- ``writers.py``   every way to change a row
- ``pace.py``      pauses in the middle of the protocol
- ``breaks.py``    ways to break it on purpose
- ``compare.py``   Redis against the database
- ``outcome.py``   what is printed
"""
