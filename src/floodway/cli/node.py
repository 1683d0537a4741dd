"""`floodway node`: one node of a network as a process of its own, or the coordinator of all of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from floodway.cli.arguments import PROCESS, Control, GivenOptions, KeyFile, Links, NetworkFile, job_command
from floodway.cli.view.page import ReadToken, watched
from floodway.errors import InputError


@job_command
def node(
    given: GivenOptions,
    network: NetworkFile,
    state: Annotated[Path, typer.Option(help="Folder that all nodes of the network share.")],
    node: Annotated[str | None, typer.Option(help="Which node of the network to run.")] = None,
    coordinator: Annotated[bool, typer.Option("--coordinator", help="Run the coordinator instead of a node.")] = False,
    seconds: Annotated[
        str | None, typer.Option(help="End after this time; default: when asked to.", metavar="DURATION")
    ] = None,
    control: Control = "dfit",
    listen: Annotated[
        str,
        typer.Option(help="HOST:PORT of this agent's HTTP API; port 0 takes a free one.", rich_help_panel=PROCESS),
    ] = "",
    urls: Annotated[
        str,
        typer.Option(help="Addresses of the agents, A=http://…,B=…; over the file's `url`.", rich_help_panel=PROCESS),
    ] = "",
    key_file: KeyFile = None,
    cert: Annotated[
        Path | None, typer.Option(help="Certificate of this agent (PEM), for mutual TLS.", rich_help_panel=PROCESS)
    ] = None,
    private_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).", rich_help_panel=PROCESS)] = None,
    ca: Annotated[
        Path | None,
        typer.Option(help="The authority that signs all agents' certificates (PEM).", rich_help_panel=PROCESS),
    ] = None,
    read_token_file: ReadToken = None,
    links: Links = None,
    parent: Annotated[
        int | None, typer.Option(help="End when this process is no longer the parent.", rich_help_panel=PROCESS)
    ] = None,
) -> None:
    """Run one node of a network: its Spark application, its drops, its part of the planning, its HTTP API.

    Nodes read and write link logs below the shared state folder, or Kafka topics with --links (nodes that share no
    folder need the same prefix). A node whose inputs are not there yet waits for them. --page shows all nodes whose
    folders are below --state; metrics of this one are at /metrics of its API.

    Example: floodway node net.yaml --node A --state runs/net --control dfit --listen 127.0.0.1:8701
    """
    from floodway.agent.node.node_options import NodeOptions, parse_control, parse_listen
    from floodway.agent.wire.signing import load_security
    from floodway.job.options import values
    from floodway.job.options.flags import parsed
    from floodway.job.options.options import JobOptions
    from floodway.network.file import load_network

    sys.path.insert(0, str(Path.cwd()))  # where a user expects `run: package.module:function` to be found
    if coordinator == (node is not None):
        raise InputError(
            "give either --node NAME or --coordinator", hint="Write `floodway node net.yaml --node A --state DIR`"
        )
    net = load_network(network)
    security = load_security(key_file, cert, private_key, ca, os.environ, read_token_file)
    declared = {name: one.url for name, one in net.nodes.items() if one.url is not None}
    addresses = {**declared, **parse_urls(urls)}
    host, port = parse_listen(listen or _own_address(addresses, node or "coordinator"))
    chosen = parsed("node", given)
    root = state.absolute()
    if node is None:
        from floodway.agent.node.node import run_coordinator

        run_coordinator(
            net,
            root,
            host=host,
            port=port,
            urls=addresses,
            security=security,
            options=JobOptions(**chosen),
            parent=parent,
        )
        return
    from floodway.agent.loop.run_files import save_network
    from floodway.agent.node.node import run_node
    from floodway.spark.query.layout import NodeLayout

    options = NodeOptions(
        node=node,
        root=root,
        control=parse_control(control),
        host=host,
        port=port,
        urls=addresses,
        security=security,
        seconds=None if seconds is None else values.duration("--seconds", seconds),
        parent=parent,
        links=links,
        **chosen,
    )
    if options.page is not None or options.open_page:
        save_network(root, net)
    own = NodeLayout(root).own(node).root
    with watched(root, options, job=own, key_file=key_file, read_token_file=read_token_file):
        run_node(net, options)


def parse_urls(text: str) -> dict[str, str]:
    """Read `A=http://host:1,B=http://host:2`.

    >>> parse_urls("A=http://127.0.0.1:8701")
    {'A': 'http://127.0.0.1:8701'}
    """
    found = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, url = part.partition("=")
        if not (name and equals and url):
            raise InputError(f"--urls: {part!r} is not name=address", hint="Write --urls A=http://127.0.0.1:8701")
        found[name] = url
    return found


def _own_address(addresses: dict[str, str], name: str) -> str:
    """Without --listen an agent listens at the address that the others have for it."""
    return addresses.get(name, "127.0.0.1:0").partition("://")[2] or "127.0.0.1:0"
