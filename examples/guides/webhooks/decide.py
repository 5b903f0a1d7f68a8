"""A signed message to `/hooks/decisions` approves a call with changed arguments."""

import json
import os
from datetime import UTC, datetime

from standardwebhooks import Webhook
from starlette.testclient import TestClient  # any HTTP client does

import sayso
from sayso.server import create_app

secret = os.environ["DESK_HOOK_SECRET"] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwqL0uKkVpfjY="  # noqa: S105
sayso.configure(store="memory:")
app = create_app(hooks={"desk": {"secret_env": "DESK_HOOK_SECRET", "reviewers": ["ada"]}})
inbox = TestClient(app, base_url="http://localhost")

held = sayso.hold("refund", {"order": "A-4721", "amount": 320})
request = sayso.Review().get(held.id)
approval = {
    "request_id": request.id,
    "verb": "approve",
    "fingerprint": request.current_fingerprint,
    "reviewer": {"subject": "ada"},
    "changes": {"amount": 80},
}
body, now = json.dumps(approval), datetime.now(UTC)  # noqa: TID251
headers = {
    "webhook-id": "msg_1",
    "webhook-timestamp": str(int(now.timestamp())),
    "webhook-signature": Webhook(secret).sign("msg_1", now, body),
}
answer = inbox.post("/hooks/decisions", content=body, headers=headers)
print(answer.status_code, answer.json()["state"])
print(held.wait().changes)
