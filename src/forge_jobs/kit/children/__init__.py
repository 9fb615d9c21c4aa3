"""Child processes: started without a shell, spoken to in lines, ended with their worker."""
