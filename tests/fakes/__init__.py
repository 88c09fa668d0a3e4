"""Tools that only play: put BIN first on PATH, and every probe is answered from HOST, well or sick."""

from pathlib import Path

BIN = Path(__file__).resolve().parent / "bin"
HOST = BIN.parent / "host"
