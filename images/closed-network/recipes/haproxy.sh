# HAProxy from Debian's packages, used like the official image: user haproxy (99), arguments go to haproxy, master-worker
# mode in the foreground, a soft stop by SIGUSR1.
# shellcheck shell=bash
image=$HAPROXY_IMAGE
inputs() { say "$CLOSED_DIR/haproxy/entrypoint.sh"; }

build() { # DIR KEY
  local root=$1/root
  haproxy_root "$root"
  import_root "$root" "$image" "$2" 'USER haproxy' 'WORKDIR /var/lib/haproxy' 'STOPSIGNAL SIGUSR1' \
    'ENTRYPOINT ["docker-entrypoint.sh"]' 'CMD ["haproxy", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]' \
    'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
}

haproxy_root() { # DIR
  local root=$1 version
  debian_root "$root" sid haproxy/experimental
  version=$(in_root "$root" haproxy -v | sed -n 's/^HAProxy version \([0-9.]*\).*/\1/p')
  [[ $version == "${image#*:}".* ]] || die "Debian now has HAProxy $version, not ${image#*:}"
  in_root "$root" sh -euc 'groupmod -g 99 haproxy; usermod -u 99 -g 99 -d /var/lib/haproxy haproxy
    mkdir -p /var/lib/haproxy /usr/local/etc/haproxy; chown haproxy:haproxy /var/lib/haproxy
    ln -sf /usr/sbin/haproxy /usr/local/sbin/haproxy'
  install -m755 "$CLOSED_DIR/haproxy/entrypoint.sh" "$root/usr/local/bin/docker-entrypoint.sh"
}
