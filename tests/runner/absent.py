"""Tests that a machine may leave out, each proven by a probe (see not-here.toml)."""

import subprocess
import tomllib


class Absences:
    """The table of not-here.toml, and which of its rows were used in this run."""

    def __init__(self, rows):
        self.rows = {row["id"]: row for row in rows}
        self.used = []

    @classmethod
    def load(cls, path):
        with open(path, "rb") as file:
            return cls(tomllib.load(file).get("absent", []))

    def excuses(self, test, identifier):
        """None where the absence is listed and its probe proves it, otherwise what is wrong."""
        row = self.rows.get(identifier)
        if row is None:
            return f"left out as '{identifier}', which tests/not-here.toml does not list"
        if not proven(row["probe"]):
            return f"left out as '{identifier}', but its probe does not prove that: {row['probe']}"
        self.used.append((test, row))
        return None

    def report(self):
        for test, row in self.used:
            print(f"not applicable here: {test}: {row['why']} (probe: {row['probe']})")


def proven(probe):
    done = subprocess.run(["bash", "-c", probe], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    return done.returncode == 0
