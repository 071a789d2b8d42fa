"""Hash shards: an index is divided among several, each kept like an index without shards."""
