"""The image's entrypoint, for engines that are started by that of their own image: the environment tells which."""

import os
import sys

from . import whisper
from .ollama import cli

if "WHISPER__MODEL" in os.environ:
    whisper.main(os.environ)
else:
    cli.main(sys.argv[1:] or ["serve"])
