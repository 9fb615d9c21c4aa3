"""What the SQLite backend needs of the operating system: locks, forks, signals, sockets."""
