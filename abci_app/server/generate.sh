#!/bin/sh
# Makes abci_pb2.py and abci_pb2.pyi from abci.proto. PYTHON names an interpreter with the development packages.
set -eu
cd "$(dirname "$0")/../.."
PYTHON="${PYTHON:-.venv/bin/python}"
PATH="$(dirname "$PYTHON"):$PATH" "$PYTHON" -m grpc_tools.protoc -I. --python_out=. --mypy_out=. abci_app/server/abci.proto
