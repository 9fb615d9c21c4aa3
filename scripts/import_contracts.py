"""A contract for import-linter: a room imports a short list of rooms directly, no other of ours.

The built-in kinds either look at indirect imports too or insist that every named module exists.
This one judges direct imports alone, and a room that is not built yet breaks nothing.
A room stands for its whole package; a root package stands for its `__init__` alone, and with `.*`
behind it for all that is inside.
"""

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class OnlyContract(Contract):
    """`modules` may directly import, of our own packages, only themselves and `may_import`."""

    modules = fields.ListField(subfield=fields.StringField())
    may_import = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        roots = {name.partition(".")[0] for name in self.modules + self.may_import}
        strays: list[str] = []
        for module in sorted(graph.modules):
            home = next((room for room in self.modules if _within(module, room)), None)
            if home is None:
                continue
            for target in sorted(graph.find_modules_directly_imported_by(module)):
                ours = target.partition(".")[0] in roots
                if ours and not any(_within(target, room) for room in [home, *self.may_import]):
                    strays.append(f"{module} imports {target}")
        return ContractCheck(kept=not strays, metadata={"strays": strays})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for stray in check.metadata["strays"]:
            output.print_error(stray, bold=False)
        output.print_error(f"Allowed: {', '.join(self.may_import)}", bold=False)


def _within(module: str, room: str) -> bool:
    if room.endswith(".*"):
        return module.startswith(room[:-1])
    return module == room or ("." in room and module.startswith(room + "."))
