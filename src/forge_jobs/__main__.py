"""``python -m forge_jobs``: the ``forge`` command where its script is not on the path."""

from forge_jobs.cli.main import main

if __name__ == "__main__":
    main()
