"""The image's entrypoint, for engines that are started by that of their own image: what they are told says which."""

import os
import sys

from . import infinity, whisper
from .ollama import cli

if "WHISPER__MODEL" in os.environ:
    whisper.main(os.environ)
elif sys.argv[1:2] == ["v2"]:
    infinity.main(sys.argv[2:], os.environ)
else:
    cli.main(sys.argv[1:] or ["serve"])
