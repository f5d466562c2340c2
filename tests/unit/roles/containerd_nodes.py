"""Configurations of containerd of nodes in the field: files by path. ``CRI`` stands for the plugin's name."""

from __future__ import annotations

from .containerd_model import NAMES, TOP

CRI = "CRI"
CONF_D = "/etc/containerd/conf.d/99-nvidia.toml"


def runtime(name: str, kind: str = "io.containerd.runc.v2", further: str = "", options: str = "") -> str:
    table = f'[plugins."CRI".containerd.runtimes.{name}]'
    return (
        f'{table}\n  runtime_type = "{kind}"\n{further}'
        f'[plugins."CRI".containerd.runtimes.{name}.options]\n  {options}\n'
    )


def default(name: str) -> str:
    return f'[plugins."CRI".containerd]\n  default_runtime_name = "{name}"\n'


SYSTEMD = "SystemdCgroup = true"
TOOLKIT = 'BinaryName = "/usr/bin/nvidia-container-runtime"\n  SystemdCgroup = true'
RUNC = runtime("runc", options=SYSTEMD)
NVIDIA = runtime("nvidia", options=TOOLKIT)
KATA = runtime(
    "kata",
    "io.containerd.kata.v2",
    "  privileged_without_host_devices = true\n",
    'ConfigPath = "/opt/kata/configuration.toml"',
)
GVISOR = runtime("runsc", "io.containerd.runsc.v1", options='TypeUrl = "io.containerd.runsc.v1.options"')
CRUN = runtime("crun", options=f'BinaryName = "/usr/bin/crun"\n  {SYSTEMD}')
RICH = runtime(
    "runc",
    further='  pod_annotations = ["io.example.*"]\n  container_annotations = ["io.other.*"]\n'
    "  privileged_without_host_devices = true\n"
    '  base_runtime_spec = "/etc/containerd/cri-base.json"\n  cni_conf_dir = "/etc/cni/other"\n'
    "  cni_max_conf_num = 2\n",
    options=f'{SYSTEMD}\n  Root = "/run/other"\n  NoNewKeyring = true',
)

NODES: dict[str, dict[str, str]] = {
    "no-file": {},
    "empty-file": {TOP: ""},
    "only-version": {TOP: "version = 0\n"},
    "kubeadm": {TOP: "version = 0\n" + RUNC},
    "kubeadm-full": {TOP: "version = 0\n" + default("runc") + RUNC},
    "every-setting": {TOP: "version = 0\n" + default("runc") + RICH},
    "toolkit-alone-default": {TOP: "version = 0\n" + default("nvidia") + NVIDIA},
    "toolkit-alone": {TOP: "version = 0\n" + RUNC + NVIDIA},
    "toolkit-default": {TOP: "version = 0\n" + default("nvidia") + NVIDIA + RUNC},
    "toolkit-1.17": {
        TOP: "version = 0\n"
        + default("runc")
        + RUNC
        + NVIDIA
        + runtime("nvidia-cdi", options='BinaryName = "/usr/bin/nvidia-container-runtime.cdi"\n  SystemdCgroup = true')
        + runtime("nvidia-legacy", options='BinaryName = "/usr/bin/nvidia-container-runtime.legacy"'),
    },
    "alias-default": {TOP: "version = 0\n" + default("gpu") + RUNC + runtime("gpu", options=TOOLKIT)},
    "runc-runs-nvidia": {TOP: "version = 0\n" + default("runc") + runtime("runc", options=TOOLKIT)},
    "operator": {
        TOP: "version = 0\n"
        + default("nvidia")
        + RUNC
        + runtime(
            "nvidia",
            further="  privileged_without_host_devices = false\n",
            options='BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"\n  SystemdCgroup = true\n'
            '  Root = "/run/gpu"',
        ),
    },
    "kata-default": {TOP: "version = 0\n" + default("kata") + RUNC + KATA},
    "kata-and-nvidia-default": {TOP: "version = 0\n" + default("nvidia") + KATA + NVIDIA},
    "kata-alone": {TOP: "version = 0\n" + default("kata") + KATA},
    "gvisor-default": {TOP: "version = 0\n" + default("runsc") + GVISOR + RUNC},
    "gke": {
        TOP: "version = 0\noom_score = -999\n[debug]\n  level = 'info'\n"
        + default("runc")
        + '[plugins."CRI".cni]\n  bin_dir = "/home/kubernetes/bin"\n  conf_dir = "/etc/cni/net.d"\n'
        + RUNC
        + GVISOR,
    },
    "eks": {
        TOP: 'version = 0\nroot = "/var/lib/containerd"\nstate = "/run/containerd"\n'
        'imports = ["/etc/containerd/config.d/*.toml"]\n[grpc]\naddress = "/run/containerd/containerd.sock"\n'
        + default("runc")
        + runtime("runc", further='  base_runtime_spec = "/etc/containerd/base-runtime-spec.json"\n', options=SYSTEMD),
    },
    "aks": {
        TOP: "version = 0\noom_score = -999\n"
        + default("nvidia-container-runtime")
        + runtime("nvidia-container-runtime", options=TOOLKIT)
        + runtime("untrusted", options=TOOLKIT)
        + runtime("runc", options='BinaryName = "/usr/bin/runc"\n  SystemdCgroup = true'),
    },
    "crun-default": {TOP: "version = 0\n" + default("crun") + CRUN},
    "crun-default-beside-runc": {TOP: "version = 0\n" + default("crun") + RUNC + CRUN},
    "comments": {
        TOP: "# Of our team.\nversion = 0 # do not touch\n\n"
        + default("runc").replace('"runc"', "'runc' # for all pods")
        + "# The usual one.\n"
        + RUNC
        + "# The end.\n",
    },
    "quoted-otherwise": {
        TOP: 'version = 0\n[ plugins . \'CRI\' . "containerd" . runtimes . "runc" ]\n'
        "runtime_type = 'io.containerd.runc.v2'\n"
        "[plugins.'CRI'.containerd.'runtimes'.runc.\"options\"]\n\"SystemdCgroup\" = true\n",
    },
    "dotted-keys": {
        TOP: 'version = 0\n[plugins."CRI".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
        "options.SystemdCgroup = true\n",
    },
    "only-imports": {
        TOP: 'version = 0\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
        "/etc/containerd/conf.d/10-runtimes.toml": "version = 0\n" + default("runc") + RUNC,
    },
    "imports-relative": {
        TOP: 'version = 0\nimports = ["conf.d/*.toml"]\n' + RUNC,
        "/etc/containerd/conf.d/10-proxy.toml": "version = 0\n[debug]\n  level = 'info'\n",
    },
    "toolkit-drop-in": {
        TOP: 'version = 0\nimports = ["/etc/containerd/conf.d/*.toml"]\n' + RUNC,
        CONF_D: "version = 0\n" + default("nvidia") + NVIDIA + RUNC,
    },
    "toolkit-drop-in-alone": {
        TOP: 'version = 0\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
        CONF_D: "version = 0\n" + default("nvidia") + NVIDIA,
    },
    "drop-in-of-another-name": {
        TOP: 'version = 0\nimports = ["/etc/containerd/conf.d/*.toml"]\n' + default("kata") + RUNC + KATA,
        "/etc/containerd/conf.d/50-gpu.toml": "version = 0\n" + default("nvidia") + RUNC + NVIDIA + KATA,
    },
    "conflicting-drop-ins": {
        TOP: 'version = 0\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
        "/etc/containerd/conf.d/10-base.toml": "version = 0\n" + default("kata") + RUNC + KATA,
        "/etc/containerd/conf.d/20-gpu.toml": "version = 0\n" + default("nvidia") + NVIDIA + RUNC,
    },
    "patterns-not-sorted": {
        TOP: 'version = 0\nimports = ["/etc/containerd/conf.z/*.toml", "/etc/containerd/conf.a/*.toml"]\n',
        "/etc/containerd/conf.a/gpu.toml": "version = 0\n" + default("nvidia") + NVIDIA + RUNC,
        "/etc/containerd/conf.z/base.toml": "version = 0\n" + default("kata") + RUNC + KATA,
    },
    "imports-of-imports": {
        TOP: 'version = 0\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
        "/etc/containerd/conf.d/10-more.toml": 'version = 0\nimports = ["/etc/containerd/conf.a/gpu.toml"]\n',
        "/etc/containerd/conf.d/20-base.toml": "version = 0\n" + default("kata") + RUNC + KATA,
        "/etc/containerd/conf.a/gpu.toml": "version = 0\n" + default("nvidia") + NVIDIA + RUNC,
    },
    "other-plugins": {TOP: 'version = 0\n[plugins."io.containerd.internal.v1.opt"]\n  path = "/opt/containerd"\n'},
}
# For containerd 2 with files of version 3.
SINCE_3: dict[str, dict[str, str]] = {
    "split-plugins": {
        TOP: 'version = 3\n[plugins."io.containerd.cri.v1.images"]\n  snapshotter = "overlayfs"\n'
        '[plugins."io.containerd.cri.v1.images".pinned_images]\n  sandbox = "registry.k8s.io/pause:3.10"\n' + RUNC
    },
    # containerd imports this directory by default.
    "drop-ins-without-a-file": {"/etc/containerd/conf.d/10-gpu.toml": "version = 3\n" + RUNC + NVIDIA},
}


def node(name: str, version: int) -> dict[str, str]:
    """The files in this version of containerd's configuration: 2 or 3."""
    files = {**NODES, **SINCE_3}[name]
    return {
        path: text.replace("version = 0", f"version = {version}")
        .replace(f'"{CRI}"', f'"{NAMES[version]}"')
        .replace(f"'{CRI}'", f"'{NAMES[version]}'")
        for path, text in files.items()
    }
