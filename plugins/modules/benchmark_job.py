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
  - Creates, updates or deletes any number of BenchmarkJobs in one task, and waits until all of them are complete.
  - Each job measures a service once, with genai-bench. An existing job with the same spec is not changed. If the spec
    differs, the job is recreated. To repeat a measurement without a change, delete the job first.
  - The API server checks all jobs before the first one is written. Jobs are written by server-side apply with the field
    manager C(slipway.inference), so fields of other managers do not change.
  - When a job fails permanently, the task fails at once and reports the cause. A job fails if any request failed or no
    request was sent. A job waits until its service is ready.
extends_documentation_fragment:
  - slipway.inference.apis.of_benchmarks
  - slipway.inference.k8s_auth
  - slipway.inference.state
  - slipway.inference.attributes
attributes:
  check_mode:
    support: full
    details:
      - Sends the change to the API server as a dry run.
      - If the CRD or the namespace is missing, predicts the change and prints a warning.
  diff_mode:
    support: full
    details: Shows the fields that the module owns. Secrets are masked.
  idempotent:
    support: full
options:
  benchmark_jobs:
    description:
      - The jobs. Each is either a complete manifest, or O(benchmark_jobs[].name), O(benchmark_jobs[].namespace),
        O(benchmark_jobs[].labels), O(benchmark_jobs[].annotations) and O(benchmark_jobs[].spec).
      - An empty list is allowed.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the job.
        type: str
      namespace:
        description: Namespace of the job. Defaults to O(namespace).
        type: str
      labels:
        description: Labels of the job.
        type: dict
      annotations:
        description: Annotations of the job.
        type: dict
      spec:
        description: Spec of the job according to its API. Not needed to delete it.
        type: dict
      api_version:
        description: C(apiVersion) of a manifest. It must match O(api).
        type: str
        aliases: [apiVersion]
      kind:
        description: Kind of a manifest. It must be C(BenchmarkJob).
        type: str
      metadata:
        description: Metadata of a manifest, with C(name), C(namespace), C(labels), C(annotations).
        type: dict
      status:
        description: Ignored, so objects that were read from a cluster are accepted.
        type: dict
  name:
    description: Name of a single job, instead of O(benchmark_jobs).
    type: str
  namespace:
    description: Namespace of the single job, and of jobs in O(benchmark_jobs) without a namespace. It must exist.
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
  - Benchmarks can take long. There is one run for each scenario and concurrency, and each can take
    C(maxTimePerIteration) minutes. O(wait_timeout) must be longer than all runs together.
  - The module does not create namespaces. Create them with M(kubernetes.core.k8s).
  - The account needs the verbs C(get), C(list), C(watch), C(create), C(patch) and C(delete) on the jobs. To explain
    failures, it also needs C(list) on events and pods and C(get) on C(pods/log) in their namespaces.
  - Values of environment variables with names that suggest secrets are masked in all output. Prefer a Secret in
    C(valueFrom).
seealso:
  - module: slipway.inference.inference_service
"""

EXAMPLES = r"""
- name: Measure a service with two prompt lengths, and wait for the results
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

- name: Show the throughput
  ansible.builtin.debug:
    msg: "{{ item.scenario }} x {{ item.concurrency }}: {{ item.outputTokensPerSecond }} tokens/s"
  loop: "{{ (measured.results[0].details | from_json).runs }}"
  loop_control:
    label: "{{ item.scenario }}"

- name: Delete the job to measure again without a change
  slipway.inference.benchmark_job:
    name: llama-speed
    namespace: chat
    state: absent
"""

RETURN = r"""
results:
  description:
    - Result for each job, in the order of the task.
    - If the task fails, RV(results[].conditions), RV(results[].events) and RV(results[].log) are only returned with
      C(-v). Failed entries do not contain RV(results[].drift), RV(results[].phase), RV(results[].url) and
      RV(results[].waited).
  returned: always, for the entries that were processed
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
      description: Whether the task changed it. Status changes do not count.
      returned: always
      type: bool
    ready:
      description: Whether it is complete and no request failed.
      returned: unless O(state=absent) or the API server rejected it
      type: bool
    phase:
      description: State of the job. Empty until a controller has reconciled it.
      returned: unless O(state=absent) or the API server rejected it
      type: str
      sample: Completed
    url:
      description: Empty. Other modules return a URL.
      returned: unless O(state=absent) or the API server rejected it
      type: str
    details:
      description:
        - Results as JSON. V(runs) has an entry for each scenario and concurrency, with V(outputTokensPerSecond),
          V(firstTokenSeconds) and others.
        - Empty until it is complete.
      returned: unless O(state=absent) or the API server rejected it
      type: str
      sample: '{"requests":300,"failed":0,"runs":[{"scenario":"D(100,100)","outputTokensPerSecond":412.7}]}'
    reason:
      description: Reason why it is not complete or failed, as one word. Empty if it is ready.
      returned: unless O(state=absent) or the API server rejected it, and if it was not deleted in time
      type: str
      sample: RequestsFailed
    message:
      description: Explanation why it is not complete, failed or was rejected. Empty if it is ready.
      returned: unless O(state=absent), and if it could not be deleted
      type: str
    conditions:
      description: Conditions in the status, as RV(slipway.inference.model#module:results[].conditions).
      returned: unless O(state=absent) or the API server rejected it
      type: list
      elements: dict
    drift:
      description:
        - Fields of the task that another manager had changed, as RV(slipway.inference.model#module:results[].drift).
      returned: unless O(state=absent)
      type: list
      elements: dict
      version_added: 0.5.0
    waited:
      description: Seconds until it was complete or deleted.
      returned: unless the API server rejected it
      type: float
      sample: 612.4
    error_code:
      description: As RV(error_code), for this job.
      returned: if it made the task fail
      type: str
    events:
      description:
        - Latest events of the job and of its latest pod, in chronological order, as
          RV(slipway.inference.model#module:results[].events).
      returned: for the first three jobs that made the wait fail
      type: list
      elements: dict
    log:
      description: Last log lines of genai-bench.
      returned: for the first three jobs that made the wait fail
      type: list
      elements: str
error_code:
  description: Kind of the failure, as RV(slipway.inference.model#module:error_code).
  returned: on failure
  type: str
  sample: failed
hint:
  description: Suggested fix, or a reference to the one at the end of C(msg). May be empty.
  returned: on failure
  type: str
status:
  description: HTTP status of the API server's response. V(0) if there was none.
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
