"""Steps, sleeps and waits of handlers: what is stored of a run before it ends."""
