"""Approves the requests for a refund by the HTTP API, with half of the amount."""

from starlette.testclient import TestClient  # any HTTP client does

import sayso
from sayso.server import create_app
from sayso.server.auth.tokens import Tokens

held = sayso.hold("refund", {"order": "4721", "amount": 90})
_, token = Tokens(sayso.Review().store).new("review", "ada")
api = TestClient(create_app(), base_url="http://localhost", headers={"Authorization": f"Bearer {token}"})
for request in api.get("/api/v1/requests?tool=refund").json()["requests"]:
    decision = {"seen": request["fingerprint"], "changes": {"amount": 50}, "comment": "half of it"}
    after = api.post(f"/api/v1/requests/{request['id']}/approve", json=decision).json()
    print(after["state"], after["decision"]["by"])

print(held.wait().changes)
