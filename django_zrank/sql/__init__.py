"""SQL fallback: the answers of an index, computed by the database where Redis can't be trusted."""
