"""Runs the handlers of claimed jobs and turns what they did into outcomes."""
