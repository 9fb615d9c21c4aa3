"""The pages: one file per page with its read model, and the forms that act.

A page gathers what it shows from ``ops`` and names a template; it never talks to a store itself.
"""
