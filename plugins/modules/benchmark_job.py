#!/usr/bin/python

# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: benchmark_job
short_description: Run benchmarks of OME inference services, and wait for the results
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Makes, changes or deletes any number of BenchmarkJobs in one task and waits until all of them are over.
  - Each measures a service once, with genai-bench. A job that is there is left alone as long as its spec is the same;
    with another spec it is made anew. To measure again without a change, delete it first.
  - All are checked by the API server before the first is written. They are written by server-side apply, with the
    field manager C(slipway.inference), so fields that others set are left alone.
  - The task ends at once when a job has failed for good, and says why. One in which requests failed, or in which none
    was made, has failed. A job waits for its service.
extends_documentation_fragment:
  - slipway.inference.apis.of_benchmarks
  - slipway.inference.k8s_auth
  - slipway.inference.state
  - slipway.inference.attributes
attributes:
  check_mode:
    support: full
    details:
      - The API server is asked to check the change without making it.
      - Where the definition of the API or the namespace is missing, the change is predicted, with a warning.
  diff_mode:
    support: full
    details: Shows the fields that this module owns. Secrets are masked.
  idempotent:
    support: full
options:
  benchmark_jobs:
    description:
      - The jobs. Each is described either by O(benchmark_jobs[].name), O(benchmark_jobs[].namespace),
        O(benchmark_jobs[].labels), O(benchmark_jobs[].annotations) and O(benchmark_jobs[].spec), or as a whole
        manifest.
      - An empty list is allowed, and nothing is done.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the job.
        type: str
      namespace:
        description: Namespace of the job. Falls back to O(namespace).
        type: str
      labels:
        description: Labels of the job.
        type: dict
      annotations:
        description: Annotations of the job.
        type: dict
      spec:
        description: Spec of the job, as its API defines it. Not needed to delete it.
        type: dict
      api_version:
        description: C(apiVersion) of a manifest. It has to be that of O(api).
        type: str
        aliases: [apiVersion]
      kind:
        description: Kind of a manifest. It has to be C(BenchmarkJob).
        type: str
      metadata:
        description: Metadata of a manifest, with C(name), C(namespace), C(labels), C(annotations).
        type: dict
      status:
        description: Ignored. Allowed so that objects that were read from a cluster are accepted.
        type: dict
  name:
    description: Name of a single job, instead of O(benchmark_jobs).
    type: str
  namespace:
    description: Namespace of the single job, or of those in O(benchmark_jobs) that name none. It has to exist.
    type: str
  labels:
    description: Labels of a single job.
    type: dict
  annotations:
    description: Annotations of a single job.
    type: dict
  spec:
    description: Spec of a single job.
    type: dict
notes:
  - A benchmark may take long. Its runs are as many as there are scenarios and levels of concurrency, and each may take
    C(maxTimePerIteration) minutes; O(wait_timeout) has to be longer than all of them.
  - The namespaces are not made by this module; M(kubernetes.core.k8s) makes them.
  - The account needs the verbs C(get), C(list), C(watch), C(create), C(patch) and C(delete) on the jobs, and, to
    explain failures, C(list) on events and pods and C(get) on C(pods/log) in their namespaces.
  - The values of environment variables that look like secrets by their names are masked in all output. It is better to
    name a Secret by C(valueFrom).
seealso:
  - module: slipway.inference.inference_service
"""

EXAMPLES = r"""
- name: Measure a service with two lengths of prompts, and wait for the figures
  slipway.inference.benchmark_job:
    name: llama-speed
    namespace: chat
    wait_timeout: 7200
    spec:
      endpoint:
        inferenceService:
          name: llama-3-2-1b-instruct
          namespace: chat
      task: text-to-text
      trafficScenarios: ["D(100,100)", "D(2000,200)"]
      numConcurrency: [1, 8, 64]
      maxTimePerIteration: 10
      maxRequestsPerIteration: 300
      outputLocation:
        storageUri: pvc://benchmarks/llama
  register: measured

- name: Show how fast it was
  ansible.builtin.debug:
    msg: "{{ item.scenario }} x {{ item.concurrency }}: {{ item.outputTokensPerSecond }} tokens/s"
  loop: "{{ (measured.results[0].details | from_json).runs }}"
  loop_control:
    label: "{{ item.scenario }}"

- name: Measure it again without any change
  slipway.inference.benchmark_job:
    name: llama-speed
    namespace: chat
    state: absent
"""

RETURN = r"""
results:
  description:
    - What came of each job, in the order of the task.
    - If the task fails, it has no RV(results[].conditions), RV(results[].events) and RV(results[].log) without C(-v).
      Of what failed, it has no RV(results[].drift), RV(results[].phase), RV(results[].url) or RV(results[].waited).
  returned: always, as far as the task came
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the job.
      returned: always
      type: str
      sample: BenchmarkJob
    name:
      description: Name of the job.
      returned: always
      type: str
      sample: llama-speed
    namespace:
      description: Namespace of the job.
      returned: always
      type: str
      sample: chat
    changed:
      description: Whether it was changed. What its controller writes into the status does not count.
      returned: always
      type: bool
    ready:
      description: Whether it is over, and no request failed.
      returned: unless O(state=absent) or the API server refused it
      type: bool
    phase:
      description: State of the job; empty as long as no controller has seen it.
      returned: unless O(state=absent) or the API server refused it
      type: str
      sample: Completed
    url:
      description: Empty. Other modules tell here where something answers.
      returned: unless O(state=absent) or the API server refused it
      type: str
    details:
      description:
        - What it measured, as JSON. V(runs) in it has an entry for each scenario and level of concurrency, with
          V(outputTokensPerSecond), V(firstTokenSeconds) and others.
        - Empty until it is over.
      returned: unless O(state=absent) or the API server refused it
      type: str
      sample: '{"requests":300,"failed":0,"runs":[{"scenario":"D(100,100)","outputTokensPerSecond":412.7}]}'
    reason:
      description: Why it is not over, or has failed, in one word; empty when it is ready.
      returned: unless O(state=absent) or the API server refused it, and when it was not gone in time
      type: str
      sample: RequestsFailed
    message:
      description: Why it is not over, has failed, or was refused, in words; empty when it is ready.
      returned: unless O(state=absent), and when it could not be deleted
      type: str
    conditions:
      description: Conditions in the status, as RV(slipway.inference.model#module:results[].conditions).
      returned: unless O(state=absent) or the API server refused it
      type: list
      elements: dict
    drift:
      description:
        - What somebody else has changed of the fields that the task describes, as
          RV(slipway.inference.model#module:results[].drift).
      returned: unless O(state=absent)
      type: list
      elements: dict
      version_added: 0.5.0
    waited:
      description: Seconds until it was over or gone.
      returned: unless the API server refused it
      type: float
      sample: 612.4
    error_code:
      description: As RV(error_code), for this job.
      returned: when it is among those that made the task fail
      type: str
    events:
      description:
        - Newest events of the job and of its newest pod, the newest last, as
          RV(slipway.inference.model#module:results[].events).
      returned: for the first three jobs that made a wait fail
      type: list
      elements: dict
    log:
      description: Last lines that genai-bench has logged.
      returned: for the first three jobs that made a wait fail
      type: list
      elements: str
error_code:
  description: What kind of failure it was, as RV(slipway.inference.model#module:error_code).
  returned: on failure
  type: str
  sample: failed
hint:
  description: What to do about it, as at the end of C(msg). May be empty. Without C(-v), it is empty if objects failed.
  returned: on failure
  type: str
status:
  description: HTTP status that the API server answered; V(0) if it is not about an answer.
  returned: on failure
  type: int
"""

from ansible_collections.slipway.inference.plugins.module_utils._apis import BENCHMARKS
from ansible_collections.slipway.inference.plugins.module_utils._task import Module, run_state, state_arguments


def main() -> None:
    module = Module(
        argument_spec={
            "api": {"type": "str", "choices": sorted(BENCHMARKS), "default": next(iter(BENCHMARKS))},
            **state_arguments("benchmark_jobs"),
        },
        mutually_exclusive=[("benchmark_jobs", name) for name in ("name", "labels", "annotations", "spec")],
        required_one_of=[("benchmark_jobs", "name")],
        supports_check_mode=True,
    )
    run_state(module, {"benchmark_jobs": [BENCHMARKS[module.params["api"]]]})


if __name__ == "__main__":
    main()
