"""Write the pages of docs/reference and name those that changed."""

from pathlib import Path

from . import write

for changed in write(Path(__file__).resolve().parents[3]):
    print(f"written: {changed}")
