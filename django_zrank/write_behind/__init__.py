"""Write-behind scores: changed in Redis, and written to their column within seconds."""
