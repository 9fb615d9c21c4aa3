"""The store contracts: protocols that every backend implements.

A backend is built from the docstrings of this package and checked by ``testing.conformance``.

=============  =================  =========================================================
module         contract           subject
=============  =================  =========================================================
``jobs``       ``JobStore``       jobs; ``exchange`` is the hot call
``processes``  ``ProcessStore``   registrations, leases, slot shares, leaderships
``queues``     ``QueueStore``     settings of queues; published kinds
``limits``     ``LimitStore``     concurrency and rate limits, scopes, limit buckets
``schedules``  ``ScheduleStore``  cron schedules and token buckets
``metrics``    ``MetricsStore``   counters, minutes, process samples, job logs, audit
``settings``   ``SettingStore``   small named values with a version and an optional expiry
``store``      ``Maintenance``    schema, size and diagnosis of the database
``store``      ``Store``          one of each above; open, close, store clock, notifications
=============  =================  =========================================================

Two modules have code, the same for every backend: ``enqueuer`` stores jobs for all producers, and
``published_kinds`` applies what workers have published about a kind.
"""
