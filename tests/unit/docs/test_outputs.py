"""Each output that a page shows was captured, and the page shows what was captured."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tables import each

from ...docs import outputs
from ...docs.outputs import WRITE, captured, faults, matches, normalized, read, record_of, render, rewritten
from ...docs.pages import PAGES, ROOT, blocks, parse
from ...docs.test_commands import Place, run, script

PAGE = ROOT / "docs/example.md"
TEXT = """\
Create it:

```bash
kubectl apply -f model.yaml
kubectl get model
```

```text
model created
NAME   READY   AGE
tiny   1/1     2m
```

1. Read the log, which is long:

   ```text
   ...
   ```
   <!-- elsewhere: tests/unit/docs/test_outputs.py -->
   ```bash
   kubectl logs tiny
   ```

   ```text
   ready
   ```
"""
COMMANDS = "kubectl apply -f model.yaml\nkubectl get model\n"
PRINTED = "model created\nNAME      READY   AGE\ntiny      1/1     45s\n"


# ---- the pages -------------------------------------------------------------------------------------------------------


@each(PAGES, ids=str)
def test_a_page_shows_what_its_commands_printed(page: Path) -> None:
    assert "\n".join(faults(blocks(page), read(record_of(page)))) == ""


def test_a_record_has_the_commands_of_its_page_and_no_others() -> None:
    for record in outputs.RECORDS.rglob("*.md"):
        page = ROOT / record.relative_to(outputs.RECORDS)
        assert page.is_file(), f"{record} is of no page"
        shown = {above.text for above, _below in outputs.shown_outputs(blocks(page))}
        assert read(record).keys() <= shown, record
        assert record.read_text() == render(read(record)), f"{record} was edited by hand"


# ---- comparing -------------------------------------------------------------------------------------------------------


def test_an_output_that_was_never_captured_is_a_fault() -> None:
    [fault] = faults(parse(PAGE, TEXT), {})
    assert (
        fault == f"docs/example.md:9: this output was never captured from these commands. Run tests/docs with {WRITE}=1"
    )


def test_an_output_is_captured_again_after_a_change_of_its_commands() -> None:
    changed = TEXT.replace("get model", "get models")
    [fault] = faults(parse(PAGE, changed), {COMMANDS: PRINTED})
    assert "never captured from these commands" in fault


def test_a_page_that_shows_something_else_than_was_printed_is_a_fault() -> None:
    assert faults(parse(PAGE, TEXT), {COMMANDS: PRINTED}) == []
    [fault] = faults(parse(PAGE, TEXT.replace("1/1", "2/2")), {COMMANDS: PRINTED})
    assert "the page shows" in fault
    assert "tiny      1/1" in fault


def test_a_command_that_no_test_runs_names_what_checks_its_output() -> None:
    mark = "   <!-- elsewhere: tests/unit/docs/test_outputs.py -->\n"
    unnamed = TEXT.replace(mark, "").replace("kubectl logs tiny", "ansible-playbook slipway.inference.site")
    [fault] = faults(parse(PAGE, unnamed), {COMMANDS: PRINTED})
    assert fault == "docs/example.md:20: no mark names what checks this output"


@pytest.mark.parametrize(
    ("shown", "output", "expected"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a\nb\n", "a\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("a\n...\n", "a\n", True),
        ("...\nc\n", "a\nb\nc\n", True),
        ("...\nb\n", "a\nb\nc\n", False),
        ('{"id": "a", ...\n', '{"id": "a", "object": "model"}\n', True),
        ('{"id": "a", ...\n', '{"id": "b", "object": "model"}\n', False),
        ('{"id": "a", ...\n', '{"id": "a","object": "model"}\n', True),
        ("a ...\n", "a b\nc\n", False),
        ("NAME   AGE\ngw     2m\n", "NAME      AGE\ngw        3h12m\n", True),
        ("10.96.174.105  1/1\n", "10.96.3.4  2/2\n", False),
        ("10.96.174.105  1/1\n", "10.96.3.4  1/1\n", True),
        ("(1)\n", "(1)\n", True),
        ("-----BEGIN CERTIFICATE-----\n...\n", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", True),
        ("a+\n", "aa\n", False),
    ],
)
def test_only_dots_and_placeholders_match_something_else(shown: str, output: str, expected: bool) -> None:
    assert matches(shown, output) is expected


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("tiny   1/1   3m4s", "tiny 1/1 <age>"),
        ("model-tiny-6d4b98cd57-x2k9q", "model-tiny-<hash>"),
        ("10.244.0.17", "<ip>"),
        ('"created": 1763700000', '"created": <time>'),
        ("at 2026-11-29T17:00:00Z", "at <time>"),
        ('{"content":"Hello \\"you\\""}', '{"content":"<answer>"}'),
        (
            '"cached_tokens":8},"id":"chatcmpl-gg4o","timings":{"prompt_ms":86.405}',
            '"cached_tokens":<tokens>},"id":"<id>","timings":{<timings>}',
        ),
        ("krypton model docs-1a2b3c/docs-1a2b3c-x", "krypton model <namespace>/<namespace>-x"),
        ("sk-u0p4lqOq8fD8PTvGxv3XzW9m0WcJ5oX1", "<key>"),
        ("eyJhbGciOiJSUzI1NiIs.eyJ.abc-_", "<token>"),
        (
            "-----BEGIN CERTIFICATE-----\nMIIB\nabc=\n-----END CERTIFICATE-----",
            "-----BEGIN CERTIFICATE-----\n<certificate>\n-----END CERTIFICATE-----",
        ),
        ("Kubernetes v1.34.4, 2 of 2 ready, 80/TCP", "Kubernetes v1.34.4, 2 of 2 ready, 80/TCP"),
        ("qwen2-0-5b smollm2-135m", "qwen2-0-5b smollm2-135m"),
    ],
)
def test_values_that_differ_between_runs_are_placeholders(printed: str, expected: str) -> None:
    assert normalized(printed) == f"{expected}\n"


# ---- capturing -------------------------------------------------------------------------------------------------------


def test_the_output_of_each_block_is_taken_from_the_log() -> None:
    log = (
        "\n+ docs/example.md:4\nmodel created\n\n+ docs/example.md:4\nHandling connection for 8080\nNAME   READY\n"
        "Forwarding from 127.0.0.1:8080 -> 80\ntiny   1/1\n\n+ docs/example.md:21\nother\n"
    )
    assert captured(parse(PAGE, TEXT), log) == {COMMANDS: "model created\nNAME   READY\ntiny   1/1\n"}


def test_a_page_is_run_and_its_output_captured(tmp_path: Path) -> None:
    text = """\
```bash
answer() { printf \\
  '%s' "$1"; }
for word in a b; do
  answer "$word"
done
answer '{"id": 1}'
answer 1 >&2
(sleep 0; true) &
```

```text
...
```
"""
    page = parse(PAGE, text)
    status, log = run(script(page), tmp_path, {"PATH": os.environ["PATH"]})
    assert (status, list(captured(page, log).values())) == (0, ['ab\n{"id": 1}\n1\n'])


def test_a_record_can_be_read_and_has_no_secrets() -> None:
    record = render({COMMANDS: f"{PRINTED}sk-u0p4lqOq8fD8PTvGxv3XzW9m0WcJ5oX1\n"})
    above, below = parse(PAGE, record)
    assert above.text == COMMANDS
    assert below.text == f"{normalized(PRINTED)}<key>\n"


def test_a_block_that_matches_stays_and_another_is_rewritten() -> None:
    assert rewritten(TEXT, parse(PAGE, TEXT), {COMMANDS: PRINTED}) == TEXT
    other = rewritten(TEXT, parse(PAGE, TEXT), {COMMANDS: "model configured\n"})
    assert "```text\nmodel configured\n```\n\n1. Read" in other
    assert faults(parse(PAGE, other), {COMMANDS: "model configured\n"}) == []


def test_a_long_line_is_shortened() -> None:
    text = "```bash\ndate\n```\n\n```text\ntoday\n```\n"
    page = rewritten(text, parse(PAGE, text), {"date\n": f"{'word ' * 60}\n"})
    assert max(map(len, page.splitlines())) == outputs.LONGEST
    assert faults(parse(PAGE, page), {"date\n": f"{'word ' * 60}\n"}) == []


def test_the_answer_of_a_test_model_is_not_shown() -> None:
    text = "```bash\ncurl\n```\n\n```text\ntoday\n```\n"
    printed = {"curl\n": '{"content":"\ufffds ceQU"}\n'}
    page = rewritten(text, parse(PAGE, text), printed)
    assert page == text.replace("today", '{"content":"..."}')
    assert faults(parse(PAGE, page), printed) == []


def test_a_long_output_is_shortened() -> None:
    text = "```bash\ndate\n```\n\n```text\ntoday\n```\n"
    printed = {"date\n": "".join(f"line {number}\n" for number in range(300))}
    page = rewritten(text, parse(PAGE, text), printed)
    assert page.count("line") == outputs.FIRST + outputs.LAST
    assert faults(parse(PAGE, page), printed) == []


def test_an_output_names_what_the_page_names() -> None:
    place = Place("docs-1a2b3c", 41234)
    printed = (
        "model.krypton.ai/docs-1a2b3c-my-model created in docs-1a2b3c, http://127.0.0.1:41234\n"
        "service/slipway-gateway   NodePort   10.96.1.2   <none>   80:30080/TCP   2m\n"
    )
    assert place.restored(printed, "my-model at 127.0.0.1:8081") == (
        "model.krypton.ai/my-model created in models, http://127.0.0.1:8081\n"
        "service/slipway-gateway   ClusterIP   10.96.1.2   <none>   80/TCP   2m\n"
    )
