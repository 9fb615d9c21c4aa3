"""LISTEN and NOTIFY: waking the workers of this process and of others."""
