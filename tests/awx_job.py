"""Runs a playbook of examples/awx as AWX runs a job.

By ansible-runner, in a private data directory of the job: the project, the released collections, an
inventory, the survey's answers as extra variables. The environment has what a credential of the type "OpenShift or
Kubernetes API Bearer Token" puts there, and nothing else of the machine. A user who is not root owns that directory and
may write nowhere else but where everybody may.

As a program, for Molecule: python -m tests.awx_job PLAYBOOK --answers FILE --folder FOLDER [--check], with the
credential in K8S_AUTH_*. The collection is released into the folder once, for all its jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/awx"
CORE = ROOT / ".venv/collections/ansible_collections/kubernetes/core"
FIRST_USER = 1_000_000_000
"""Regular users have lower IDs."""
INVENTORY: dict[str, Any] = {
    "all": {
        "hosts": {
            "localhost": {
                "ansible_connection": "local",
                "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            }
        }
    }
}
OPEN = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
"""Where everybody may write."""
CACHE = "k8srcp-"
"""Begins the name of the file in which kubernetes.core keeps what a server has."""


@dataclass
class Credential:
    """As a user of AWX fills it in; ``authority`` is the certificate itself, or nothing."""

    host: str
    token: str
    authority: str


@dataclass
class Job:
    """What became of a job."""

    status: int
    output: str
    artifacts: dict[str, Any] = field(default_factory=dict)
    """What its tasks set by set_stats: AWX gives it to the next step of a workflow."""
    changed: int = 0
    user: int = -1
    strays: list[str] = field(default_factory=list)
    """Files of the job's user outside the private data directory; empty if the job has no separate user."""


def private_data(folder: Path, answers: dict[str, Any], credential: Credential) -> Path:
    """What AWX lays out for a job; ``folder/collections`` holds the released collection already."""
    place = folder / "job"
    for part in ("env", "inventory", "artifacts"):
        (place / part).mkdir(parents=True)
    shutil.copytree(EXAMPLE, place / "project")
    shutil.copytree(folder / "collections", place / "requirements_collections")
    (place / "inventory/hosts.json").write_text(json.dumps(INVENTORY))
    (place / "env/extravars").write_text(json.dumps({**answers, "awx_job_id": 1, "awx_user_name": "admin"}))
    (place / "env/authority.pem").write_text(credential.authority)
    return place


def environment(place: Path, credential: Credential) -> dict[str, str]:
    """Without an authority AWX has no certificate checked."""
    trusted = {"K8S_AUTH_VERIFY_SSL": "True", "K8S_AUTH_SSL_CA_CERT": str(place / "env/authority.pem")}
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(place),
        "LANG": "C.UTF-8",
        "ANSIBLE_COLLECTIONS_PATH": str(place / "requirements_collections"),
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_HOST_KEY_CHECKING": "False",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
        "AWX_PRIVATE_DATA_DIR": str(place),
        "JOB_ID": "1",
        "K8S_AUTH_HOST": credential.host,
        "K8S_AUTH_API_KEY": credential.token,
        **(trusted if credential.authority else {"K8S_AUTH_VERIFY_SSL": "False"}),
    }


def user_of(folder: Path) -> int:
    """A user ID for the jobs of this directory, so that their files in /tmp are not mistaken for other jobs'."""
    return FIRST_USER + folder.stat().st_ino % 1_000_000_000


def as_another_user(place: Path, user: int) -> list[str]:
    """Returns the prefix of the command that runs root's tests as a separate user, who may read but not write."""
    if os.getuid() != 0:
        return []
    for path in (place, *place.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)
    changed = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    # Without this, access checks deny programs what they may in fact execute.
    kept = ["--securebits=+no_setuid_fixup"]
    return [
        *changed,
        *kept,
        *(f"--{kind}=-all,+dac_read_search" for kind in ("inh-caps", "ambient-caps", "bounding-set")),
    ]


def galaxy(folder: Path, *words: str) -> None:
    """Runs in a folder without an ansible.cfg that would point at an installed collection."""
    command = [sys.executable, "-m", "ansible", "galaxy", "collection", *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=300)


def release(folder: Path) -> None:
    """Builds the collection and installs it from its tarball, beside kubernetes.core."""
    built, collections = folder / "built", folder / "collections"
    galaxy(folder, "build", str(ROOT), "--output-path", str(built))
    [tarball] = built.glob("*.tar.gz")
    galaxy(folder, "install", str(tarball), "--no-deps", "--offline", "--force", "--collections-path", str(collections))
    shutil.copytree(CORE.resolve(), collections / "ansible_collections/kubernetes/core")


def run(folder: Path, playbook: str, answers: dict[str, Any], credential: Credential, *flags: str) -> Job:
    """Runs ``playbook`` with the survey's answers; ``folder`` is the job's own and has been given to release()."""
    shutil.rmtree(folder / "job", ignore_errors=True)
    began, place = time.time(), private_data(folder, answers, credential)
    user = user_of(folder)
    command = [sys.executable, "-m", "ansible_runner", "run", str(place), "--playbook", playbook, "--ident", "1"]
    more = ["--cmdline", " ".join(flags)] if flags else []
    done = subprocess.run(
        [*as_another_user(place, user), *command, *more],
        cwd=place,
        env=environment(place, credential),
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    job = Job(done.returncode, done.stdout + done.stderr)
    events = sorted((place / "artifacts/1/job_events").glob("*.json"))
    for event in (json.loads(path.read_text()) for path in events):
        if event["event"] == "playbook_on_stats":
            job.artifacts = event["event_data"].get("artifact_data", {})
            job.changed = sum(event["event_data"]["changed"].values())
    job.user = (place / "artifacts/1/stdout").stat().st_uid
    job.strays = [str(path) for place in OPEN for path in place.glob("*") if stray(path, user, began)]
    return job


def stray(path: Path, user: int, began: float) -> bool:
    """Whether a job left it where everybody may write; what kubernetes.core keeps of a server is none."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return status.st_uid == user and status.st_mtime >= began and not path.name.startswith(CACHE)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("playbook")
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--check", action="store_true", help="a check run, with the changes shown")
    given = parser.parse_args()
    authority = Path(os.environ["K8S_AUTH_SSL_CA_CERT"]).read_text()
    credential = Credential(os.environ["K8S_AUTH_HOST"], os.environ["K8S_AUTH_API_KEY"], authority)
    if not (given.folder / "collections").exists():
        given.folder.mkdir(parents=True)
        release(given.folder)
    flags = ("--check", "--diff") if given.check else ()
    job = run(given.folder, given.playbook, json.loads(given.answers.read_text()), credential, *flags)
    outcome = {"changed": job.changed, "artifacts": job.artifacts, "user": job.user, "strays": job.strays}
    print(job.output if job.status else json.dumps(outcome))
    return job.status


if __name__ == "__main__":
    sys.exit(main())
