# Debian's Python with pip, compatible with the official slim image: python, python3 and pip are on PATH, and pip can install
# packages. The minor version is that of the name. The patch release is Debian's, with its fixes; the label has it.
# shellcheck shell=bash
image=$PYTHON_IMAGE

build() { # DIR KEY
  local root=$1/root wanted=${image#*:} version
  debian_root "$root" bookworm python3 python3-pip
  version=$(in_root "$root" python3 --version | sed -n 's/^Python //p')
  wanted=${wanted%%-*}
  [[ ${version%.*} == "${wanted%.*}" ]] || die "$image needs Python ${wanted%.*}, but Debian bookworm has $version."
  rm -f "$root"/usr/lib/python3.11/EXTERNALLY-MANAGED
  mkdir -p "$root/usr/local/bin"
  ln -s /usr/bin/python3 "$root/usr/local/bin/python3"
  ln -s /usr/bin/python3 "$root/usr/local/bin/python"
  ln -s /usr/bin/pip "$root/usr/local/bin/pip"
  import_root "$root" "$image" "$2" "LABEL org.opencontainers.image.version=$version" 'ENV LANG=C.UTF-8' 'CMD ["python3"]' \
    'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin'
  say "  $image is Debian's Python $version"
}
