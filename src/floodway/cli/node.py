"""`floodway node`: one node of a network as a process of its own, or the coordinator of all of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from floodway.cli.page import Page, ReadToken, page_of
from floodway.cli.retention_options import RetainBytes, RetainSeconds, parse_retention
from floodway.cli.spark_options import Conf, Master, parse_conf
from floodway.errors import InputError


def node(
    network: Annotated[Path, typer.Argument(help="The network file.", metavar="NET.yaml")],
    state: Annotated[Path, typer.Option(help="Folder that all nodes of the network share.")],
    node: Annotated[str | None, typer.Option(help="Which node of the network to run.")] = None,
    coordinator: Annotated[bool, typer.Option("--coordinator", help="Run the coordinator instead of a node.")] = False,
    control: Annotated[str, typer.Option(help="alone, dfit or coordinator: who plans.")] = "dfit",
    listen: Annotated[str, typer.Option(help="HOST:PORT of this agent's HTTP API; port 0 takes a free one.")] = "",
    urls: Annotated[str, typer.Option(help="Addresses of the agents, A=http://…,B=…; over the file's `url`.")] = "",
    key_file: Annotated[Path | None, typer.Option(help="File with the key that signs requests.")] = None,
    cert: Annotated[Path | None, typer.Option(help="Certificate of this agent (PEM), for mutual TLS.")] = None,
    private_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    ca: Annotated[Path | None, typer.Option(help="The authority that signs all agents' certificates (PEM).")] = None,
    read_token_file: ReadToken = None,
    page: Page = None,
    seconds: Annotated[float | None, typer.Option(help="End after this time; default: when told to.")] = None,
    mode: Annotated[str, typer.Option(help="enforce, observe (drop nothing) or off.")] = "enforce",
    target: Annotated[float | None, typer.Option(help="Latency target of the whole path in seconds.")] = None,
    controller: Annotated[str, typer.Option(help="batch, latency, pid, red, aurora or tu.")] = "batch",
    planner: Annotated[str, typer.Option(help="The coordinator's planner: exact, solver, solver-w or fit.")] = "exact",
    side_output: Annotated[int, typer.Option(help="Save up to this many dropped tuples a batch, 64 MiB in all.")] = 0,
    retain_bytes: RetainBytes = None,
    retain_seconds: RetainSeconds = None,
    master: Master = None,
    conf: Conf = None,
    links: Annotated[
        str | None, typer.Option(help="Links over Kafka: kafka://host:port[/prefix]; default logs.")
    ] = None,
    parent: Annotated[int | None, typer.Option(help="End when this process is no longer the parent.")] = None,
) -> None:
    """Run one node of a network: its Spark application, its drops, its part of the planning, its HTTP API.

    Nodes read and write link logs below the shared state folder, or Kafka topics with --links (nodes that share no
    folder need the same prefix). A node whose inputs are not there yet waits for them. --page shows all nodes whose
    folders are below --state; metrics of this one are at /metrics of its API.

    Example: floodway node net.yaml --node A --state runs/net --control dfit --listen 127.0.0.1:8701
    """
    from floodway.agent.node.options import NodeOptions, parse_control, parse_listen
    from floodway.agent.wire.signing import load_security
    from floodway.cli.run import parse_mode
    from floodway.network.file import load_network

    sys.path.insert(0, str(Path.cwd()))  # where a user expects `run: package.module:function` to be found
    if coordinator == (node is not None):
        raise InputError("give either --node NAME or --coordinator", hint="floodway node net.yaml --node A --state DIR")
    net = load_network(network)
    security = load_security(key_file, cert, private_key, ca, os.environ, read_token_file)
    declared = {name: one.url for name, one in net.nodes.items() if one.url is not None}
    addresses = {**declared, **parse_urls(urls)}
    host, port = parse_listen(listen or _own_address(addresses, node or "coordinator"))
    if node is None:
        from floodway.agent.node.coordinator import run_coordinator

        run_coordinator(
            net,
            state.absolute(),
            host=host,
            port=port,
            urls=addresses,
            security=security,
            planner=planner,
            parent=parent,
        )
        return
    from floodway.agent.loop.run_files import save_network
    from floodway.agent.node.node import run_node

    if page is not None:
        save_network(state, net)
    with page_of(state, page, key_file=key_file, read_token_file=read_token_file):
        run_node(
            net,
            NodeOptions(
                node=node,
                root=state.absolute(),
                control=parse_control(control),
                host=host,
                port=port,
                urls=addresses,
                security=security,
                seconds=seconds,
                mode=parse_mode(mode),
                target_seconds=target,
                controller=controller,
                side_output=side_output,
                retention=parse_retention(retain_bytes, retain_seconds),
                master=master,
                settings=parse_conf(conf),
                parent=parent,
                links=links,
            ),
        )


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
    """Without --listen an agent listens where the others are told to find it."""
    return addresses.get(name, "127.0.0.1:0").partition("://")[2] or "127.0.0.1:0"
