"""What the SQL backends share: SQL text files, migrations, pagination."""
