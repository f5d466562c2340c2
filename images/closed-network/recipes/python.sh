# Debian's own Python with pip, used like the official slim image: python, python3 and pip on PATH, pip free to install.
# It is of the version that the name says, and of the patch release that Debian has, with its fixes; the label says which.
# shellcheck shell=bash
image=$PYTHON_IMAGE

build() { # DIR KEY
  local root=$1/root wanted=${image#*:} version
  debian_root "$root" bookworm python3 python3-pip
  version=$(in_root "$root" python3 --version | sed -n 's/^Python //p')
  wanted=${wanted%%-*}
  [[ ${version%.*} == "${wanted%.*}" ]] || die "Debian bookworm has Python $version, and $image must be of ${wanted%.*}"
  rm -f "$root"/usr/lib/python3.11/EXTERNALLY-MANAGED
  mkdir -p "$root/usr/local/bin"
  ln -s /usr/bin/python3 "$root/usr/local/bin/python3"
  ln -s /usr/bin/python3 "$root/usr/local/bin/python"
  ln -s /usr/bin/pip "$root/usr/local/bin/pip"
  import_root "$root" "$image" "$2" "LABEL org.opencontainers.image.version=$version" 'ENV LANG=C.UTF-8' 'CMD ["python3"]' \
    'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin'
  say "  $image is Debian's Python $version"
}
