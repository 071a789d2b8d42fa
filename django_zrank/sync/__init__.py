"""The mirror: capture, pushes after commits, drains, rebuilds and verification."""
