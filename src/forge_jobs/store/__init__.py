"""The store contracts: protocols that every backend implements, and the rules over them.

A backend is built from the docstrings of this package and checked by ``testing.conformance``.

=================  ====================  =======================================================
module             contract              subject
=================  ====================  =======================================================
``jobs``           ``JobStore``          jobs; ``exchange`` is the hot call
``processes``      ``ProcessStore``      registrations, leases, slot shares, leaderships
``settings``       ``SettingStore``      what people and code configure, by namespace and name
``limits``         ``LimitStore``        gates and limit buckets
``schedules``      ``ScheduleStore``     ticks of cron schedules
``token_buckets``  ``TokenBucketStore``  permits of token buckets
``metrics``        ``MetricsStore``      counters, minutes, process samples, job logs, audit
``breakdowns``     ``BreakdownStore``    numbers by kind and by tag
``store``          ``Maintenance``       schema, size and diagnosis of the database
``store``          ``Store``             all of the above; open, close, clock, notifications
=================  ====================  =======================================================

The rest is code, the same for every backend. ``Queues``, ``Limits``, ``CronSchedules`` and
``TokenBuckets`` hold the rules of typed settings over ``SettingStore``. ``enqueuer`` stores jobs
for all producers, and ``published_kinds`` applies what workers have published about a kind.
"""
