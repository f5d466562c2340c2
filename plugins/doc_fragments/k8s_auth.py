# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that say how to reach the cluster; the same as in kubernetes.core."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Path of a kubeconfig, or its content as a dictionary. Several paths are separated by V(:).
      - Without it and without O(host), uses the ServiceAccount of the pod that runs the module, E(KUBECONFIG) or
        V(~/.kube/config), in this order.
      - Also set by E(K8S_AUTH_KUBECONFIG).
    type: raw
  context:
    description: Context of the kubeconfig. Also set by E(K8S_AUTH_CONTEXT).
    type: str
  host:
    description: URL of the API server. Also set by E(K8S_AUTH_HOST).
    type: str
  api_key:
    description: Bearer token. Also set by E(K8S_AUTH_API_KEY).
    type: str
  username:
    description: User name for basic authentication. Also set by E(K8S_AUTH_USERNAME).
    type: str
  password:
    description: Password for O(username). Also set by E(K8S_AUTH_PASSWORD).
    type: str
  client_cert:
    description: Path of a client certificate. Also set by E(K8S_AUTH_CERT_FILE).
    type: path
    aliases: [cert_file]
  client_key:
    description: Path of the key of O(client_cert). Also set by E(K8S_AUTH_KEY_FILE).
    type: path
    aliases: [key_file]
  ca_cert:
    description:
      - Path of the CA certificates for the API server's certificate.
      - Also set by E(K8S_AUTH_SSL_CA_CERT).
    type: path
    aliases: [ssl_ca_cert]
  validate_certs:
    description: Whether to verify the API server's certificate. Also set by E(K8S_AUTH_VERIFY_SSL).
    type: bool
    aliases: [verify_ssl]
  proxy:
    description: URL of an HTTP proxy for the API server. Also set by E(K8S_AUTH_PROXY).
    type: str
  no_proxy:
    description:
      - Hosts, domains and networks to reach without O(proxy), separated by commas.
      - Also set by E(K8S_AUTH_NO_PROXY).
    type: str
  proxy_headers:
    description: Headers for the proxy.
    type: dict
    suboptions:
      proxy_basic_auth:
        description: V(user:password) for the proxy. Also set by E(K8S_AUTH_PROXY_HEADERS_PROXY_BASIC_AUTH).
        type: str
      basic_auth:
        description: V(user:password) for the API server. Also set by E(K8S_AUTH_PROXY_HEADERS_BASIC_AUTH).
        type: str
      user_agent:
        description: User agent of the client. Also set by E(K8S_AUTH_PROXY_HEADERS_USER_AGENT).
        type: str
  persist_config:
    description:
      - Whether to write refreshed tokens back to the kubeconfig.
      - Also set by E(K8S_AUTH_PERSIST_CONFIG).
    type: bool
  impersonate_user:
    description: User to act as. Also set by E(K8S_AUTH_IMPERSONATE_USER).
    type: str
  impersonate_groups:
    description: Groups to act as. Also set by E(K8S_AUTH_IMPERSONATE_GROUPS), separated by commas.
    type: list
    elements: str
requirements:
  - python >= 3.11
  - PyYAML for kubeconfig files
  - kubernetes >= 24.2.0 (Python package) for kubeconfigs with exec plugins or auth providers such as OIDC, and for TLS
    and SOCKS proxies
seealso:
  - module: kubernetes.core.k8s
"""
