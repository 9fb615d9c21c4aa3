"""A package, so that its fixtures close the browser before tests that need an event loop."""
