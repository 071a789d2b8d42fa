"""Write-behind: scores that begin in Redis, and are written to their column within seconds."""
