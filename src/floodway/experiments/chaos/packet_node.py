"""One agent in a network namespace of its own: `python -m …packet_node NAME CONTROL ADDRESS FOLDER DESCRIPTOR`.

It hands the device of its namespace to the switch (`packets.py`) over the socket DESCRIPTOR. What a node measures is in
FOLDER/cost; what A plans is in FOLDER/keeps.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

from floodway.agent.planes.plane import make_control_plane, make_coordinator
from floodway.agent.wire.server import HttpServer
from floodway.experiments.chaos import namespaces
from floodway.experiments.chaos.networks import NETWORK, RATES, SECURITY
from floodway.network.file import parse_network

PORT = 8000
URLS = {name: f"http://10.99.0.{number}:{PORT}" for number, name in enumerate(("A", "B", "coordinator"), 1)}


def main(name: str, control: str, address: str, folder: Path, descriptor: int) -> None:
    """Run the agent until its parent is gone."""
    device = namespaces.own_network(f"{address}/24")
    with socket.socket(fileno=descriptor) as parent:
        socket.send_fds(parent, [b"d"], [device])
    os.close(device)
    network, mother = parse_network(NETWORK), os.getppid()
    urls = {one: url for one, url in URLS.items() if control == "coordinator" or one != "coordinator"}
    if name == "coordinator":
        talking = make_coordinator(network, SECURITY, urls, folder / name)
        with HttpServer(talking.routes(), host=address, port=PORT, security=SECURITY):
            talking.start()
            while os.getppid() == mother:
                time.sleep(0.5)
        return
    plane = make_control_plane(control, network, name, SECURITY, urls, folder / name)
    with HttpServer(plane.routes(), host=address, port=PORT, security=SECURITY):
        plane.start()
        while os.getppid() == mother:
            inputs = dict(RATES) if name == "A" else dict.fromkeys(plane.planner.network.streams, 0.5)
            path = folder / "cost"
            cost = float(path.read_text()) if path.exists() else 3.0
            plane.observe(inputs, {"b1": cost} if name == "B" else {}, time.time())
            keeps = dict(plane.planner.plan(inputs).keeps)
            if name == "A":
                (folder / "keeps.new").write_text(json.dumps(keeps))
                (folder / "keeps.new").replace(folder / "keeps")
            time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), int(sys.argv[5]))
