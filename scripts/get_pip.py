"""Stands in for the get-pip script that ansible-test wants from one fixed host: installs pip from the wheel beside it.

scripts/ansible-test.sh puts both into ansible-test's cache, so that its environments can be built wherever pip works.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path


def main() -> None:
    """Runs `pip install pip==VERSION` with the options that ansible-test gives to get-pip, by pip's own wheel."""
    # get_pip_24_2.py stands beside pip-24.2-py3-none-any.whl.
    version = ".".join(re.findall(r"\d+", Path(__file__).stem))
    wheel = next(Path(__file__).parent.glob(f"pip-{version}-*.whl"))
    options = [option for option in sys.argv[1:] if option not in ("--no-setuptools", "--no-wheel")]
    packages = [option for option in options if not option.startswith("pip==")]
    sys.argv = ["pip", "install", "--upgrade", "--force-reinstall", *packages, str(wheel)]
    sys.path.insert(0, str(wheel))
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
