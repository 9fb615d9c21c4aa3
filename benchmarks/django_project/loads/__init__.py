"""The application whose tasks are measured."""
