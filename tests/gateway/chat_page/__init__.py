"""A package, so that its browser ends with it: no other loop may run in the thread beside it."""
