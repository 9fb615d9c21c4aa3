"""Jobs in one SQLite file, for many threads and many processes of one machine.

``io`` holds the connections: ``io/writer.py`` commits in groups, ``io/reader.py`` runs queries.
``os`` holds files, locks, sockets and fork hooks: ``os/fair_lock.py`` orders the writers of several
processes, ``os/liveness_file.py`` shows which of them run, ``os/notify_socket.py`` wakes them.
The statements are in ``sql``, the schema is in ``migrations``.
"""
