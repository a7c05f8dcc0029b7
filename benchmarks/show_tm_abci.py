"""Shows why tm-abci cannot serve this chain: installs it aside, tries to start it, and says what happens.

.venv/bin/python benchmarks/show_tm_abci.py
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

TRIES = {
    "import with the protobuf that pip picks": ([], "import abci"),
    "start its server with protobuf 3.20": (
        ["protobuf==3.20.3"],
        "from abci import ABCIServer, BaseApplication; ABCIServer(app=BaseApplication()).run()",
    ),
    "look for ABCI 2.0 calls (FinalizeBlock) with protobuf 3.20": (
        ["protobuf==3.20.3"],
        "from abci import types_pb2 as t; names = [f.name for f in t.Request.DESCRIPTOR.fields]; "
        "print('request kinds:', ', '.join(names)); assert 'finalize_block' in names, 'no finalize_block'",
    ),
}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tm-abci-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin", "python")
        subprocess.run([python, "-m", "pip", "install", "-q", "tm-abci==0.6.3"], check=True)
        for title, (packages, code) in TRIES.items():
            if packages:
                subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True, stderr=subprocess.DEVNULL)
            tried = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
            printed = [line for line in (tried.stdout + tried.stderr).splitlines() if line.strip()]
            errors = [line for line in printed if "Error" in line] or printed[-1:]
            print(f"{title}: exit {tried.returncode}")
            for line in [*tried.stdout.splitlines()[:3], *errors[:2]]:
                print(f"    {line.strip()}")
    print(f"(Python {sys.version.split()[0]})")


if __name__ == "__main__":
    main()
