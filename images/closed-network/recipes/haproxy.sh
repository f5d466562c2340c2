# HAProxy from Debian's packages, compatible with the official image: user haproxy (99), arguments for haproxy, master-worker
# mode in the foreground, a soft stop with SIGUSR1. Debian has one patch release of a series at a time, so only the series
# matches the image's name; its label has the release.
# shellcheck shell=bash
image=$HAPROXY_IMAGE
inputs() { say "$CLOSED_DIR/haproxy/entrypoint.sh"; }

build() { # DIR KEY
  local root=$1/root version
  haproxy_root "$root"
  version=$(haproxy_version "$root")
  import_root "$root" "$image" "$2" "LABEL org.opencontainers.image.version=$version" \
    'USER haproxy' 'WORKDIR /var/lib/haproxy' 'STOPSIGNAL SIGUSR1' \
    'ENTRYPOINT ["docker-entrypoint.sh"]' 'CMD ["haproxy", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]' \
    'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
  say "  $image is Debian's HAProxy $version"
}

haproxy_version() { # DIR
  in_root "$1" haproxy -v | sed -n 's/^HAProxy version \([0-9.]*\).*/\1/p'
}

haproxy_root() { # DIR
  local root=$1 series=${image#*:} version
  series=${series%.*}
  debian_root "$root" sid haproxy/experimental
  version=$(haproxy_version "$root")
  [[ $version == "$series".* ]] || die "$image needs HAProxy $series, but Debian has $version. Update HAPROXY_IMAGE in images/versions.env."
  in_root "$root" sh -euc 'groupmod -g 99 haproxy; usermod -u 99 -g 99 -d /var/lib/haproxy haproxy
    mkdir -p /var/lib/haproxy /usr/local/etc/haproxy; chown haproxy:haproxy /var/lib/haproxy
    ln -sf /usr/sbin/haproxy /usr/local/sbin/haproxy'
  install -m755 "$CLOSED_DIR/haproxy/entrypoint.sh" "$root/usr/local/bin/docker-entrypoint.sh"
}
