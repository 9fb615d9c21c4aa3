"""Web frameworks: FastAPI, Starlette, Litestar, Flask. Nothing here is imported unless you do it.

Each module needs its framework: ``pip install 'forge-jobs[fastapi]'``, ``[web]`` for Starlette,
``[litestar]``, ``[flask]``. Transactions of SQLAlchemy need no module: ``forge.joined(session)``.
"""
