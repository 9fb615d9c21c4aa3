"""A package, so that its package-scoped browser closes before other tests start an event loop."""
