"""The rules of stores that change one job at a time, written once.

``transitions``, ``finish``, ``actions``, ``dedupe_keys`` and ``limit_buckets`` decide over one
mutable row and the transaction of ``ports``. SQLite uses them outside its short paths.

``jobs``, ``exchange``, ``processes`` and the other modules build a whole store on the same rules,
over the tables of ``tables``: memory does, and any store on a key-value storage can.
"""
