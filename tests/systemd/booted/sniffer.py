"""Writes a line for each frame that arrives on an interface: its protocol, and its length.

sniffer.py INTERFACE FILE
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

ALL_PROTOCOLS = 0x0003


def main(interface: str, file: Path) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as tap:
        tap.bind((interface, 0))
        with file.open("a", buffering=1) as lines:
            lines.write("listening\n")
            while True:
                frame = tap.recv(65536)
                lines.write(f"{frame[12:14].hex()} {len(frame)}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
