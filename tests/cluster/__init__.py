"""A package, so that its fixtures end with its last test: one node for all journeys, and no longer."""
