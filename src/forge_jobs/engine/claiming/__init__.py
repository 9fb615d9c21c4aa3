"""Claims jobs and writes their finishes: the exchange loop and the objects it works on."""
