"""Who is there, and what they may do. Nothing here knows a page or a route by name."""
