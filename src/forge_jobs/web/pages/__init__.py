"""The pages: one file per page with its view function and its forms.

A view function reads through ``ops`` and returns the variables of its template in ``templates``.
For example, the table of ``/jobs`` is in ``templates/jobs.html``, its variables are in ``jobs``,
and the fields of a row are those of ``ops.views.JobSummary``.
"""
