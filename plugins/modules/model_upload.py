#!/usr/bin/python

# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_upload
short_description: Upload a file or a directory to a Deckhouse model, and wait until it is published
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Uploads a local file or directory to a Deckhouse Model or ClusterModel with C(source.upload), and waits until it is
    published.
  - Waits until the model's upload is open, and reads its URL and token from the Secret in the model's status. Resumes
    after interruptions. Data from an earlier run is compared by digest and not sent again.
  - A directory is sent as one tar archive, which is created during the upload. Hidden files and directories are
    skipped.
  - Nothing is sent if the model is already uploaded.
extends_documentation_fragment:
  - slipway.inference.k8s_auth
  - slipway.inference.attributes
attributes:
  check_mode:
    support: full
    details: The file is read and compared with the uploaded data. Nothing is sent.
  diff_mode:
    support: full
    details: Shows the name and size of the file.
  idempotent:
    support: full
options:
  src:
    description:
      - File or directory on the host that runs the module.
      - A file must be a GGUF file, or a zip, tar, tar.gz or tar.zst archive with the files of a model.
    type: path
    required: true
  name:
    description: Name of the model. Specify this or O(url).
    type: str
  namespace:
    description: Namespace of the Model. If empty, the model is a ClusterModel.
    type: str
  url:
    description:
      - URL of the upload from the Secret, for accounts without access to the model and the Secret. Requires O(token).
      - The module then does not connect to the API server and only waits for the upload.
    type: str
  token:
    description: Token of the upload from the Secret.
    type: str
  checksum:
    description:
      - Expected SHA-256 of the file, V(sha256:...), or of a directory's tar archive. Checked before the upload.
    type: str
  depot_namespace:
    description: >-
      Namespace of the depot. Its ConfigMap C(slipway-depot-ca) contains the CA of the depot's certificate. If it is not
      readable, the host's CAs are trusted.
    type: str
    default: slipway-system
  depot_ca_cert:
    description: Path of the CA of the depot's certificate, instead of the ConfigMap.
    type: path
  depot_validate_certs:
    description: Whether to verify the depot's certificate.
    type: bool
    default: true
  wait:
    description: Whether to wait until the model is published.
    type: bool
    default: true
  wait_timeout:
    description: Maximum seconds for the whole task.
    type: int
    default: 7200
notes:
  - The account needs the verb C(get) on the model, on the Secret of its upload and, for the CA, on the ConfigMap
    C(slipway-depot-ca).
  - The module logs its progress in the host's system log, about every 256 MiB.
seealso:
  - module: slipway.inference.model
"""

EXAMPLES = r"""
- name: Create a model for an upload, and continue when its upload is open
  slipway.inference.model:
    api: deckhouse
    name: tiny
    namespace: models
    spec:
      source:
        upload: {}
    wait_for:
      - field: status.phase
        in: [WaitForUpload, Publishing, Ready]

- name: Upload it, and wait until workloads can use it
  slipway.inference.model_upload:
    name: tiny
    namespace: models
    src: /srv/models/tiny.gguf
    checksum: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  register: uploaded

- name: Upload a directory to a ClusterModel
  slipway.inference.model_upload:
    name: qwen3-8b
    src: /srv/models/Qwen3-8B

- name: Upload without access to the cluster
  slipway.inference.model_upload:
    url: "{{ upload_url }}"
    token: "{{ upload_token }}"
    src: /srv/models/tiny.gguf
    depot_ca_cert: /etc/pki/depot.crt
"""

RETURN = r"""
size:
  description: Size of the upload in bytes.
  returned: success
  type: int
  sample: 4294967296
checksum:
  description: SHA-256 of the upload. Empty without O(checksum).
  returned: success
  type: str
  sample: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
resumed_at:
  description: Bytes from an earlier run that were not sent again.
  returned: success
  type: int
sent:
  description: Bytes that this task sent, without interrupted requests.
  returned: success
  type: int
phase:
  description: Phase of the model. Empty with O(url).
  returned: success
  type: str
  sample: Ready
digest:
  description: Digest of the artifact. Empty until it is published.
  returned: success
  type: str
  sample: sha256:7d865e959b2466918c9863afca942d0fb89d7c9ac0c99bafc3749504ded97730
error_code:
  description: Kind of the failure, as RV(slipway.inference.model#module:error_code).
  returned: on failure
  type: str
  sample: failed
hint:
  description: Suggested fix. May be empty.
  returned: on failure
  type: str
status:
  description: HTTP status of the depot's or the API server's response. V(0) if there was none.
  returned: on failure
  type: int
"""

from collections.abc import Mapping
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils import _auth
from ansible_collections.slipway.inference.plugins.module_utils._client import Client, Object
from ansible_collections.slipway.inference.plugins.module_utils._content import Content, content
from ansible_collections.slipway.inference.plugins.module_utils._depot import Endpoint
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._task import Module, run
from ansible_collections.slipway.inference.plugins.module_utils._uploading import Cluster, Waiting, phase_of, send

MIB = 1 << 20


class Upload:
    """One run of the module ``model_upload``."""

    def __init__(self, module: Module) -> None:
        self._module, self._params = module, module.params
        self._waiting = Waiting(self._params["wait_timeout"])

    def result(self) -> dict[str, Any]:
        what = content(self._params["src"])
        if not what.size:
            raise InferenceError("invalid_input", f"{self._params['src']} is empty.")
        checksum = self._checksum(what)
        outcome = self._by_address(what) if self._params["url"] else self._by_name(what)
        return {"size": what.size, "checksum": checksum, **outcome}

    def _checksum(self, what: Content) -> str:
        expected = (self._params["checksum"] or "").lower()
        if not expected:
            return ""
        actual = what.digest(0, what.size)
        if expected.removeprefix("sha256:") != actual.removeprefix("sha256:"):
            raise InferenceError("invalid_input", f"{self._params['src']} has the checksum {actual}, not {expected}.")
        return actual

    def _by_address(self, what: Content) -> dict[str, Any]:
        endpoint = self._build_endpoint({"url": self._params["url"], "token": self._params["token"]}, "")
        if self._module.check_mode:
            return self._sent(what, {}, changed=not endpoint.state().complete)
        resumed, sent = send(endpoint, what, self._waiting, self._tell(what))
        return self._sent(what, {}, resumed, sent, changed=sent > 0)

    def _by_name(self, what: Content) -> dict[str, Any]:
        params = self._params
        client = Client(_auth.connect(params), self._module.warn)
        cluster = Cluster(client, params["namespace"] or "", params["name"], params["depot_namespace"])
        if self._module.check_mode:
            return self._foretold(cluster, what)
        model, opened = cluster.session(self._waiting)
        if opened is None:
            return self._sent(what, self._published(cluster, model), changed=False)
        authority = cluster.authority()

        def renewed() -> Endpoint | None:
            _model, again = cluster.session(self._waiting)
            return self._build_endpoint(again, authority) if again else None

        progress = send(self._build_endpoint(opened, authority), what, self._waiting, self._tell(what), renewed)
        return self._sent(what, self._published(cluster, model), *progress, changed=True)

    def _foretold(self, cluster: Cluster, what: Content) -> dict[str, Any]:
        try:
            model, _opened = cluster.session(self._waiting, wait=False)
        except InferenceError as error:
            if error.code not in ("not_found", "namespace_missing", "definition_missing"):
                raise
            self._module.warn(f"The model does not exist yet. The upload would start when it exists. {error.message}")
            return self._sent(what, {}, changed=True)
        return self._sent(what, model, changed=phase_of(model) in ("", "Pending", "WaitForUpload"))

    def _published(self, cluster: Cluster, model: Object) -> Object:
        return cluster.published(self._waiting) if self._params["wait"] else model

    def _build_endpoint(self, opened: Mapping[str, str], authority: str) -> Endpoint:
        file = self._params["depot_ca_cert"]
        if file:
            try:
                with open(file, encoding="ascii") as text:
                    authority = text.read()
            except (OSError, UnicodeError) as error:
                raise InferenceError("invalid_input", f"{file} cannot be read: {error}.") from error
        self._module.no_log_values.add(opened["token"])
        return Endpoint(opened["url"], opened["token"], authority, self._params["depot_validate_certs"])

    def _tell(self, what: Content) -> Any:
        return lambda there: self._module.log(f"{what.name}: {there // MIB} of {what.size // MIB} MiB are uploaded")

    def _sent(self, what: Content, model: Object, resumed: int = 0, sent: int = 0, *, changed: bool) -> dict[str, Any]:
        before, after = "", f"{what.name}: {what.size} bytes\n"
        return {
            "changed": changed,
            "diff": [{"before_header": "upload", "after_header": "upload", "before": before, "after": after}]
            if changed
            else [],
            "resumed_at": resumed,
            "sent": sent,
            "phase": phase_of(model) if model else "",
            "digest": ((model.get("status") or {}).get("artifact") or {}).get("digest") or "",
        }


def main() -> None:
    module = Module(
        argument_spec={
            **_auth.ARGUMENTS,
            "src": {"type": "path", "required": True},
            "name": {"type": "str"},
            "namespace": {"type": "str"},
            "url": {"type": "str"},
            "token": {"type": "str", "no_log": True},
            "checksum": {"type": "str"},
            "depot_namespace": {"type": "str", "default": "slipway-system"},
            "depot_ca_cert": {"type": "path"},
            "depot_validate_certs": {"type": "bool", "default": True},
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {"type": "int", "default": 7200},
        },
        mutually_exclusive=[("name", "url")],
        required_one_of=[("name", "url")],
        required_together=[("url", "token")],
        supports_check_mode=True,
    )
    run(module, Upload(module).result)


if __name__ == "__main__":
    main()
