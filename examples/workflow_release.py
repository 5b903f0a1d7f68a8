"""A release as a graph of steps, two of which wait for a person.

    python examples/workflow_release.py

Both gates are asked at once. Only one is approved at first: what depends on it runs, the other one waits on. Nothing
that has run is run again.
"""

from typing import Any

import sayso


def build(version: str) -> str:
    """Build the release; the step that takes this result is called by the name `build`."""
    print(f"  build {version}")
    return f"app-{version}.tar"


def migrate(version: str) -> str:
    """Change the database."""
    print(f"  migrate to {version}")
    return f"database is at {version}"


def deploy(build: str) -> str:
    """Put a build into production."""
    print(f"  deploy {build}")
    return f"{build} is live"


def announce(deploy: str, migrate: str) -> str:
    """Tell everybody."""
    print("  announce")
    return f"{deploy}, {migrate}"


release = (
    sayso.Workflow(name="release", store="memory:")
    .step(build)
    .step(sayso.Tool(migrate, requires_approval=True, approval_prompt=lambda version: f"Migrate to {version}?"))
    .step(sayso.Tool(deploy, requires_approval=True, approval_prompt=lambda build: f"Put {build} into production?"))
    .step(announce)  # takes the results of both, so it waits for both
)


def show(output: sayso.OutputEvent) -> dict[str, str]:
    """Print where a run stands; return the ids of what waits, by step."""
    waiting: list[dict[str, Any]] = output.metadata.get("pending_approvals", [])
    for one in waiting:
        print(f"waits: {one['prompt']}")
    return {one["runnable_name"]: one["approval_id"] for one in waiting}


def main() -> None:
    """Approve one gate, look, and approve the other."""
    output = release(version="2.1").run()
    waiting = show(output)
    print("approved: migrate")
    output = release(parent_id=output.run_id, resume={waiting["migrate"]: True}).run()
    waiting = show(output)
    print("approved: deploy")
    output = release(parent_id=output.run_id, resume={waiting["deploy"]: True}).run()
    print(f"{output.status.code}: {output.output['announce']}")


if __name__ == "__main__":
    main()
