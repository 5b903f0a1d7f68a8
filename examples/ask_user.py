"""An agent that asks its user, and a tool that asks for a code in the middle of its work.

    python examples/ask_user.py

Both end the run with `input_required` and go on with the answer. The second answer does not fit its schema at first: it
is refused, and the question still waits.
"""

import warnings
from typing import Any

import sayso
from sayso.runs.decisions import IgnoredDecisionWarning, ask_user
from sayso.testing import ScriptedModel

CODE = {"type": "string", "pattern": "^[0-9]{6}$"}


def wire(amount: float, to: str) -> str:
    """Wire money. Asks for a code first: what stands above `suspend` runs again when the answer is there."""
    code = sayso.suspend({"question": f"The code for {amount:.2f} to {to}?"}, kind="code", response_schema=CODE)
    return f"wired {amount:.2f} to {to} with code {code[:2]}****"


def pays(messages: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Stand in for a model that has heard which account is meant."""
    return [("wire", {"amount": 40.0, "to": messages[-1]["content"]})]


ask = ("ask_user", {"question": "Which account?", "options": ["ada", "alan"]})
script = ScriptedModel([[ask], pays, lambda messages: messages[-1]["content"]])
agent = sayso.Agent(name="bank", model=script, tools=[ask_user, wire], store="memory:")


def main() -> None:
    """Answer until the run ends."""
    warnings.simplefilter("ignore", IgnoredDecisionWarning)  # a refused answer warns; here it is printed
    answers = iter(["ada", "12-34", "123456"])
    output = agent(prompt="Wire 40 to A.").run()
    while output.status.reason == "input_required":
        (question,) = output.metadata["pending_interactions"]
        refused = question["metadata"]["interaction"].get("refused")
        answer = next(answers)
        print(f"{question['payload']['question']}{f' ({refused})' if refused else ''} {answer}")
        output = agent(parent_id=output.run_id, resume={question["interaction_id"]: answer}).run()
    print(output.output)


if __name__ == "__main__":
    main()
