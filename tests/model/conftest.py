"""A failed assertion of the machine shows what it compared."""

import pytest

for name in ("compare", "machine", "operators", "stepping", "workers"):
    pytest.register_assert_rewrite(f"tests.model.{name}")
