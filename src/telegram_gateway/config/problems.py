"""Everything that is wrong with a configuration, told at once."""

from forge_jobs import BadConfig


class BadGatewayConfig(BadConfig):
    """The gateway cannot start like this; ``problems`` has one line for each mistake."""

    def __init__(self, problems: list[str]) -> None:
        count = len(problems)
        title = "1 problem" if count == 1 else f"{count} problems"
        super().__init__("\n".join([f"{title} in the configuration:", *problems]))
        self.problems = problems


class Problems:
    """Collects mistakes, and warnings that do not stop the start."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.warnings: list[str] = []

    def add(self, where: str, what: str) -> None:
        """One mistake: where it stands, what is wrong and what to write instead."""
        self.found.append(f"- {where}: {what}")

    def warn(self, where: str, what: str) -> None:
        """Something that works, but not as its author may think."""
        self.warnings.append(f"{where}: {what}")

    def check(self) -> None:
        """Raise everything that was found."""
        if self.found:
            raise BadGatewayConfig(self.found)
