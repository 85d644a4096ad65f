"""What the clients of others are tried on: a daemon with a simulated service and a reserved stream, over HTTP and gRPC."""
import socket

PATIENCE = 60
CONFIG = """
[daemon]
socket = "s"
profile = "profile.json"
realtime = false
bus = "off"
max-frame = 65536
[daemon.oip]
http = "127.0.0.1:{http}"
grpc = "127.0.0.1:{grpc}"
{more}
[[service]]
name = "null"
engine = "simulated"
simulated = {{ times = ["1ms"], input = 3, output = 2 }}
deadline = "20s"
[[service.stream]]
name = "front"
constraints = [{{ row-miss = 1 }}]
arrivals = [{{ periodic = {{ period = "1s", jitter = "10s" }} }}]
"""


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
