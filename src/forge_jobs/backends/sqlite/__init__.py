"""Jobs in one SQLite file, for many threads and many processes of one machine.

``place`` knows the files, ``turnstile`` whose turn it is to write, ``writer`` commits in groups,
``reader`` looks without disturbing, ``live`` says who is alive, ``bell`` wakes other processes.
The statements lie in ``sql``, the schema in ``migrations``.
"""
