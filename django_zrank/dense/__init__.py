"""Dense ranks (1223): equal members share a rank, and the next rank follows without a gap."""
