"""One case of cases.toml: what each end is given, who begins, what is done, and what must come of it."""

import os
import tomllib
from dataclasses import dataclass, field, fields, replace

HERE = os.path.dirname(os.path.abspath(__file__))
SECRET = "Vn3t0tGZ0QmGZyqkz1zQ5bqTfYtLq3wP"


@dataclass(frozen=True)
class End:
    """What one gateway is told."""
    identity: str = ""
    peer_identity: str = ""
    secret: str = SECRET
    certificate: str = ""
    ike: str = "aes256gcm16-prfsha384-ecp384"
    esp: str = "aes256gcm16"
    networks: str = ""
    peer_networks: str = ""


@dataclass(frozen=True)
class Case:
    name: str
    # "psk", a kind of key of pki.py, or "rsa-pss".
    auth: str = "psk"
    left: End = End()
    right: End = End()
    # Who begins; each is a row of the matrix.
    by: tuple = ("left", "right")
    steps: tuple = ()
    # A refusal: what each kind of end writes about it. No tunnel may come up.
    refused: dict = field(default_factory=dict)
    nat: bool = False
    outer: int = 4
    # Of IKE datagrams; 0 leaves each end its default.
    fragment_size: int = 0
    childless: bool = False
    dpd: bool = False

    def end(self, which):
        return getattr(self, which)

    def certificate(self, which):
        """The name of the file in the folder of pki.py."""
        return f"{which}-{self.end(which).certificate or self.auth.removesuffix('-pss')}"


def load_cases():
    with open(os.path.join(HERE, "cases.toml"), "rb") as file:
        table = tomllib.load(file)
    cases = [made(row) for row in table["case"]]
    cases += [made({"name": f"IKE {suite}", "ike": suite}) for suite in table["ike"]]
    cases += [made({"name": f"ESP {suite}", "esp": suite, "steps": ["rekey child left"]}) for suite in table["esp"]]
    return cases


def made(row):
    row = dict(row)
    # What both ends have in common may stand in the row itself.
    shared = {each.name: row.pop(each.name) for each in fields(End) if each.name in row}
    for which, other, mine, theirs in (("left", "right", 1, 2), ("right", "left", 2, 1)):
        end = End(identity=f"{which}.example", peer_identity=f"{other}.example", networks=f"10.{mine}.0.0/24",
                  peer_networks=f"10.{theirs}.0.0/24")
        row[which] = replace(end, **shared, **row.get(which, {}))
    for name in ("by", "steps"):
        if name in row:
            row[name] = tuple(row[name])
    return Case(**row)
