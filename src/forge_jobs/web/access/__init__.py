"""Authentication and roles. No module here depends on a page or a route."""
