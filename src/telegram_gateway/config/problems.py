"""Collects every mistake in a configuration and raises them as one error."""

from forge_jobs import BadConfig


class BadGatewayConfig(BadConfig):
    """The configuration is invalid; ``problems`` has one line per mistake."""

    def __init__(self, problems: list[str]) -> None:
        count = len(problems)
        title = "1 problem" if count == 1 else f"{count} problems"
        super().__init__("\n".join([f"{title} in the configuration:", *problems]))
        self.problems = problems


class Problems:
    """Collects mistakes, and warnings that do not stop startup."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.warnings: list[str] = []

    def add(self, where: str, what: str) -> None:
        """Add one mistake: its location, what is wrong and what to write instead."""
        self.found.append(f"- {where}: {what}")

    def warn(self, where: str, what: str) -> None:
        """Add a warning: a setting that works, but perhaps not as intended."""
        self.warnings.append(f"{where}: {what}")

    def check(self) -> None:
        """Raise BadGatewayConfig if there is any mistake."""
        if self.found:
            raise BadGatewayConfig(self.found)
