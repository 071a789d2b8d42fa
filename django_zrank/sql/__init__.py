"""SQL fallback: the answers of an index, computed by the database when Redis can't be trusted."""
