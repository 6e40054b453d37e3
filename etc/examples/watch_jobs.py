#!/usr/bin/python3
"""Prints the caller's own jobs, and a line whenever one of them changes. docs/api.md explains each step.

    watch_jobs.py [SOCKET [ADDRESS CA_FILE]]

SOCKET is where the daemon of this host hands out tokens (default: /run/spur/auth.sock). ADDRESS is the `[tls]` listener of a
controller on another host, and CA_FILE the authority of its certificate. Needs Debian's python3-grpcio, and the modules that
protoc makes of Spur's .proto files:

    protoc -I proto --python_out=. --grpc_python_out=. \\
        --plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin proto/spur/v1/*.proto
"""
import os
import pwd
import sys
import time

import grpc
from spur.v1 import controller_pb2, controller_pb2_grpc, identity_pb2, identity_pb2_grpc

PROTOCOL = "2.0"
TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)


def connect(socket, address, ca_file):
    """A channel to the controller, and the metadata that every call carries."""
    local = grpc.insecure_channel(f"unix:{socket}")
    minted = identity_pb2_grpc.IdentityStub(local).MintToken(identity_pb2.MintTokenRequest(), timeout=10)
    metadata = [("authorization", f"Spur {minted.token}"), ("spur-version", PROTOCOL)]
    if minted.controller_port:
        # The controller is on this host and answers at the socket, too.
        return local, metadata
    if not address:
        raise ConnectionError("no controller is on this host now; one elsewhere is named by ADDRESS and CA_FILE")
    with open(ca_file, "rb") as file:
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(file.read())), metadata


def follow(channel, metadata, request, jobs):
    """Reads changes until the stream ends, and keeps `jobs` and the place in `request` up to date."""
    changed = {}
    for message in controller_pb2_grpc.ControllerStub(channel).WatchCluster(request, metadata=metadata):
        if message.begins:
            jobs.clear()
        for job in message.jobs:
            changed[job.id] = jobs[job.id] = job
        for number in message.gone_jobs:
            if jobs.pop(number, None):
                changed[number] = None
        if message.complete:
            for number, job in sorted(changed.items()):
                words = f"{job.name} {job.state} {job.nodes or '(' + job.reason + ')'}" if job else "is forgotten"
                print(f"entry {message.seq}: job {number} {words}", flush=True)
            changed.clear()
            # After a break, the controller or its successor tells what has changed since.
            request.after_seq, request.history = message.seq, message.history


def main():
    defaults = ["/run/spur/auth.sock", "", ""]
    socket, address, ca_file = sys.argv[1:] + defaults[len(sys.argv) - 1:]
    mine = controller_pb2.JobFilter(users=[pwd.getpwuid(os.getuid()).pw_name], states=["all"])
    request = controller_pb2.WatchClusterRequest(filter=mine)
    jobs = {}
    while True:
        try:
            follow(*connect(socket, address, ca_file), request, jobs)
        except grpc.RpcError as error:
            if error.code() not in TRANSIENT:
                sys.exit(f"{error.code().name}: {error.details()}")
            print(f"waiting for the controller: {error.details()}", file=sys.stderr, flush=True)
        except ConnectionError as error:
            print(f"waiting for the controller: {error}", file=sys.stderr, flush=True)
        time.sleep(1)


main()
