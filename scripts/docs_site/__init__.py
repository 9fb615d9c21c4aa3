"""The site of the documentation: `make docs` builds it from docs/ with Sphinx."""
