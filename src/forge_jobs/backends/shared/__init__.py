"""Code shared by the backends: SQL text files, migrations, pagination."""
