"""Links from a job to its trace in the user's tracing system."""

from urllib.parse import quote

from markupsafe import Markup


def trace_id(trace: str) -> str:
    """The trace id of a stored trace context: the second part of a W3C ``traceparent``, else the
    whole text."""
    parts = trace.split(" ", 1)[0].split("-")
    return parts[1] if len(parts) == 4 else trace


def trace_link(template: str | None, trace: str) -> Markup | None:
    """The address of a trace; None without a template. The id is URL-encoded."""
    if template is None:
        return None
    return Markup.escape(template.replace("{trace_id}", quote(trace_id(trace), safe="")))
