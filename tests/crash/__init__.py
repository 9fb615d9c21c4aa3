"""Real worker processes, killed, stopped and starved; each test bounded in time."""
