"""What SQLite needs of the operating system: locks, forks, signals, sockets, liveness files."""
