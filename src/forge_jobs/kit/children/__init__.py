"""Child processes: started without a shell, line protocols over pipes, killed with their worker."""
