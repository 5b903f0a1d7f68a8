"""Check a receipt with a public key, by its bytes alone, as somebody who has no store would.

    python examples/check_receipt.py receipt.json public.key

It needs `pip install cryptography`, and prints the call, what was shown, and what happened to it.
"""

import hashlib
import json
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

sha = hashlib.sha256


def must(holds, what):
    if not holds:
        raise ValueError(f"REFUSED: {what}")


def checked(content, key):
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.removeprefix("ed25519:")))
    body, _, rest = content.decode("ascii").removeprefix('{\n"receipt": ').rpartition(',\n"proof": ')
    said, proof = json.loads(body), json.loads(rest.removesuffix("\n}\n"))
    public.verify(bytes.fromhex(proof["signature"] or ""), body.encode())
    proof = {"digest": sha(body.encode()).hexdigest(), "key": key, "signature": bytes.fromhex(proof["signature"]).hex()}
    must(content.decode() == f'{{\n"receipt": {body},\n"proof": {json.dumps(proof)}\n}}\n', "it has another form")
    link, rows = said["chain"]["before"], said["chain"]["rows"]
    for row in rows:
        link = sha(json.dumps([link, *row[:8]], separators=(",", ":")).encode()).hexdigest()
        must(link == row[8], f"row {row[1]} does not follow")
    own = [row for row in rows if row[3] == said["request"]["id"]]
    asked, steps = json.loads(own[0][7]), [row[4:6] for row in own]
    must((own[0][4], asked["fingerprint"]) == ("asked", said["request"]["fingerprint"]), "its rows are of another call")
    must(asked["shown"] == sha(said["shown"]["text"].encode()).hexdigest(), "something else was shown")
    return said, steps


if __name__ == "__main__":
    said, steps = checked(Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]).read_text().strip())
    print(said["request"]["tool"], said["shown"]["text"], *steps, sep="\n")
