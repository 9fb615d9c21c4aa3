"""Where jobs are kept: one package per kind of store, none of which knows another.

``url.open_store`` chooses by address and imports no more than it needs.
"""
