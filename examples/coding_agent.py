"""A session of a coding agent is played to the hook, as Claude Code would: each tool call waits, or passes.

    python examples/coding_agent.py

It says which request waits; a second terminal decides, and may change the command:

    sayso approve ID --set command='rm -rf build/tmp'

Nothing is deleted: the agent is a recording, and only what the hook answers is real.
"""

import json
import subprocess
import sys

SESSION = {"session_id": "5f1c2d7e-0a61-4e0a-9f52-6b1f3a2c9d10", "transcript_path": "", "cwd": "/home/ada/site"}
CALLS = [
    ("toolu_01", "Read", {"file_path": "/home/ada/site/README.md"}),
    ("toolu_02", "Bash", {"command": "rm -rf build", "description": "Remove the build"}),
]


def hook(event: str, **fields: object) -> dict[str, object]:
    """Run the hook as the agent's settings have it, and return its answer."""
    payload = json.dumps({**SESSION, "hook_event_name": event, **fields})
    command = [sys.executable, "-m", "sayso", "hook", "claude-code", "--wait", "45s"]
    done = subprocess.run(command, input=payload, stdout=subprocess.PIPE, text=True, check=True)
    answer = json.loads(done.stdout).get("hookSpecificOutput", {})
    return dict(answer)


def main() -> None:
    """Play the session."""
    for call_id, tool, arguments in CALLS:
        call = {"tool_name": tool, "tool_use_id": call_id}
        answer = hook("PreToolUse", tool_input=arguments, **call)
        decision = answer.get("permissionDecision", "left to the agent's own rules")
        print(f"{tool}: {decision}")
        if decision == "deny":
            print("for the model:", answer["permissionDecisionReason"])
            continue
        run = answer.get("updatedInput", arguments)
        print("the agent runs:", json.dumps(run))
        hook("PostToolUse", tool_input=run, tool_response={"stdout": "", "stderr": ""}, **call)
    hook("SessionEnd", reason="other")


if __name__ == "__main__":
    main()
