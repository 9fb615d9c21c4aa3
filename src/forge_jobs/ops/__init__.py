"""What people see and do: read models and operator actions, one vocabulary for every surface.

``look`` reads, ``why`` explains, ``act`` changes, ``doctor`` judges, ``audit`` remembers who did
what. Everything here takes a Store and knows neither backends nor the engine.
"""
