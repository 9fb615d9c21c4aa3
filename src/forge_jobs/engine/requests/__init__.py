"""Turns a kind and a payload into a request for a job: routing, limits, published kinds."""
