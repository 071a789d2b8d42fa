"""Write-behind: write-behind scores, and are written to their column within seconds."""
