"""The only engine of a model dies. The next one answers requests without a byte of an answer; streams end with an error
that OpenAI's client raises."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import openai
import pytest

from tests.cluster.cluster import Cluster, Object, unique, wait

from .engine import CONTAINER, PATIENCE, engine, requests_of

SLOTS, WAITING = 4, 8
CONTEXT, LONG_TOKENS, FEW_TOKENS = 4096, 3000, 5
BEGUN = 3
"""A stream with so many events has begun."""


@dataclass
class Answer:
    """A streamed chat of OpenAI's client, in a thread."""

    url: str
    model: str
    tokens: int
    identifier: str = field(default_factory=lambda: f"streams-{uuid.uuid4().hex}")
    events: int = 0
    finish: str = ""
    error: openai.OpenAIError | None = None

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE)
        try:
            stream = client.chat.completions.create(
                model=self.model,
                messages=[{"role": "user", "content": "Tell a long story."}],
                max_tokens=self.tokens,
                stream=True,
                extra_body={"ignore_eos": True},
                extra_headers={"x-request-id": self.identifier},
            )
            for chunk in stream:
                self.events += 1
                self.finish = next((choice.finish_reason or "" for choice in chunk.choices), self.finish)
        except openai.OpenAIError as error:
            self.error = error


def kill_process(cluster: Cluster, namespace: str, pod: str) -> None:
    """The kubelet starts the container again in the same pod."""
    cluster.kill(namespace, pod, CONTAINER)


def lose_pod(cluster: Cluster, namespace: str, pod: str) -> None:
    """As with its node: another pod takes its place."""
    cluster.kill(namespace, pod, CONTAINER)
    cluster.delete("Pod", namespace, pod, grace=0)


@pytest.mark.parametrize("end", [kill_process, lose_pod], ids=["process", "pod"])
def test_the_next_engine_answers_what_had_not_begun(
    cluster: Cluster, namespace: str, gateway_url: str, end: Callable[[Cluster, str, str], None]
) -> None:
    name = unique("only")
    cluster.make_model(namespace, name, **engine(SLOTS, CONTEXT))
    cluster.wait_ready(namespace, name, PATIENCE)
    cluster.wait_routed(namespace, name)
    [pod] = [pod["metadata"]["name"] for pod in cluster.pods(namespace, name)]

    begun = [Answer(gateway_url, name, LONG_TOKENS) for _number in range(SLOTS)]
    wait("all slots stream", PATIENCE, lambda: [one.events for one in begun], lambda events: min(events) >= BEGUN)
    waiting = [Answer(gateway_url, name, FEW_TOKENS) for _number in range(WAITING)]
    expected = {"processing": SLOTS, "deferred": WAITING}
    wait("the others wait", PATIENCE, lambda: requests_of(cluster, namespace, pod), lambda seen: seen == expected)
    end(cluster, namespace, pod)
    for one in (*begun, *waiting):
        one.thread.join(timeout=PATIENCE)

    assert [(one.finish, one.error) for one in waiting] == [("length", None)] * WAITING
    # A subclass would be an error of HTTP: its status came long ago.
    assert [type(one.error) for one in begun] == [openai.APIError] * SLOTS
    assert [getattr(one.error, "code", None) for one in begun] == ["answer_cut"] * SLOTS
    lines = wait(
        "the access log has all of them", PATIENCE, lambda: logged(cluster, begun), lambda seen: len(seen) == SLOTS
    )
    for one in begun:
        line = lines[one.identifier]
        assert (line["status"], line["end"][:2]) == (200, "SD"), line
        assert (line["tokens_output"], line["tokens_estimated"]) == (one.events, True), line
        assert line["tokens_input"] > 0, line


def logged(cluster: Cluster, answers: list[Answer]) -> dict[str, Object]:
    """Identifier -> line of the access log, for those answers that have one."""
    identifiers = {one.identifier for one in answers}
    texts = [text for name, text in cluster.our_logs().items() if name.endswith("/haproxy")]
    lines = [json.loads(line) for text in texts for line in text.splitlines() if '"streams-' in line]
    return {line["request_id"]: line for line in lines if line["request_id"] in identifiers}
