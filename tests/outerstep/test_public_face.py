"""What others import from outerstep, and nothing by accident."""

import subprocess
import sys
from types import ModuleType

import outerstep
from node.client import Client


def test_exported_names_are_these() -> None:
    assert sorted(outerstep.__all__) == ["Client", "PrivateKey", "__version__", "connect"]
    assert all(getattr(outerstep, name) is not None for name in outerstep.__all__)
    own = {name for name, value in vars(outerstep).items() if not isinstance(value, ModuleType)}
    public = {name for name in own if not name.startswith("_")} - {"TYPE_CHECKING", "Any"}
    assert public == {"connect"}


def test_connect_makes_a_client() -> None:
    client = outerstep.connect("127.0.0.1:26602")
    assert isinstance(client, outerstep.Client)
    assert outerstep.Client is Client
    assert client.url == "http://127.0.0.1:26602"


def test_import_stays_light() -> None:
    code = "import outerstep, sys; print(sorted({'torch', 'aiohttp', 'numpy', 'coincurve'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
