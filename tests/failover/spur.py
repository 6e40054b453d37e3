"""Two controllers, nodes and commands of Spur on a database, and checks of the submitted jobs."""
import os
import signal
import subprocess
import threading
import time

from database import PASSWORD
from hosts import Hosts, address, command, until

PORT = 6817
HEADS = ["head1", "head2"]


class Cluster:
    """Controllers on `head1` and `head2`, nodes and commands on `nodes`."""

    def __init__(self, hosts, database, programs, nodes=16, lease="3s", certified=False):
        self.hosts, self.database, self.work, self.bin = hosts, database, hosts.work, programs
        self.nodes, self.lease, self.certified = nodes, lease, certified
        os.makedirs(f"{self.work}/ran")
        command("chmod", "777", f"{self.work}/ran")
        self.links = f"{self.work}/bin"
        os.makedirs(self.links)
        command(f"{programs}/spur", "links", self.links)
        command(f"{programs}/spur", "keygen", f"{self.work}/cluster.key")
        with open(os.open(f"{self.work}/db-password", os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(PASSWORD + "\n")
        for host in [*HEADS, "nodes"]:
            self.configure(host)
        for head in HEADS:
            self.start_controller(head)
        for number in range(1, nodes + 1):
            self.start_node(number)
        until("all nodes are idle", 120, lambda: self.idle() == nodes, 0.2)

    def urls(self):
        more = f"sslrootcert={self.database.tls}/ca.pem"
        name = "spur"
        if self.certified:
            name = "certified"
            more += f"&sslcert={self.database.tls}/spur.pem&sslkey={self.work}/spur.key"
        return [f"postgres://spur@{address(host)}/{name}?{more}" for host in self.database.hosts_of_servers]

    def configure(self, host):
        urls = ", ".join(f'"{url}"' for url in self.urls())
        password = "" if self.certified else f'password_file = "{self.work}/db-password"\n'
        nodes = "".join(f'[[nodes]]\nnames = "n{n}"\ncpus = 8\nmemory_mb = 8000\nport = {7000 + n}\n'
                        for n in range(1, self.nodes + 1))
        with open(f"{self.work}/{host}.toml", "w", encoding="ascii") as file:
            file.write(f"""cluster_name = "trial"
[controller]
listen_addr = "0.0.0.0:{PORT}"
addr = "{",".join(f"{address(head)}:{PORT}" for head in HEADS)}"
state = [{urls}]
{password}lease = "{self.lease}"
[auth]
key_file = "{self.work}/cluster.key"
socket = "{self.work}/{host}.sock"
[agent]
listen_addr = "{address('nodes')}:7000"
spool_dir = "{self.work}/spool/%n"
heartbeat_interval = "1s"
{nodes}
[[partitions]]
name = "main"
nodes = "ALL"
default = true
oversubscribe = "NO"
""")

    def start_controller(self, head):
        self.hosts.start(f"ctl-{head}", head, f"{self.bin}/spurctld", "-D", "-f", f"{self.work}/{head}.toml")

    def start_node(self, number):
        name = f"n{number}"
        self.hosts.start(f"node-{name}", "nodes", f"{self.bin}/spurd", "-D", "-N", name, "-f",
                         f"{self.work}/nodes.toml", "--cpus", "8", "--memory", "8000")

    def command(self, *words):
        environment = f"SPUR_CONF={self.work}/nodes.toml"
        return Hosts.on("nodes", "env", environment, f"{self.links}/{words[0]}", *words[1:])

    def run(self, *words, timeout=400):
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, cwd=self.work)

    def ok(self, *words):
        done = self.run(*words)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def idle(self):
        done = self.run("sinfo", "-hN", "-o", "%t")
        return done.stdout.split().count("idle")

    def leader(self):
        """Returns the host of the controller that holds a valid lease in the database; `None` without one."""
        done = self.database.psql(
            "SELECT address FROM spur.lease WHERE NOT released AND clock_timestamp() < renewed + lasts_ms * interval '1 ms'",
            "certified" if self.certified else "spur")
        found = [head for head in HEADS if done.stdout.startswith(address(head))]
        return found[0] if found else None

    def log(self, name):
        with open(f"{self.work}/{name}.log", encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait_for_pair(self):
        """Waits until one controller leads and the other one stands by."""
        def is_pair():
            said = self.run("scontrol", "ping").stdout
            return said.count(" is UP") == 2 and "(primary)" in said and "(backup)" in said
        until("one controller leads and the other one stands by", 60, is_pair, 0.2)


class Submitters:
    """Threads that submit jobs one after another. Each job appends its start time to a file of its own."""

    def __init__(self, cluster, count=2):
        self.cluster, self.stopped = cluster, threading.Event()
        self.jobs, self.failed, self.lock = [], [], threading.Lock()
        # Job names are unique, also among earlier runs.
        self.begun = f"{time.time_ns():x}"
        self.threads = [threading.Thread(target=self.submit, args=(number,)) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def submit(self, thread):
        number = 0
        while not self.stopped.is_set():
            number += 1
            name = f"{self.begun}-{thread}-{number}"
            begun = time.time()
            done = self.cluster.run("sbatch", "--parsable", "-J", name, "-o", "/dev/null", "--wrap",
                                    f"date +%s.%N >> {self.cluster.work}/ran/{name}")
            with self.lock:
                if done.returncode == 0:
                    self.jobs.append((begun, time.time(), name, int(done.stdout)))
                else:
                    self.failed.append((begun, name, done.stderr.strip()))
            # The pause leaves the processors to launches, which share the machine.
            self.stopped.wait(0.1)

    def end(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def first_after(self, moment, back):
        """Returns the earliest time, at or after `back`, at which a submission begun at or after `moment` was accepted."""
        with self.lock:
            return min((ended for begun, ended, _, _ in self.jobs if begun >= moment and ended >= back), default=None)

    def first_launch_after(self, moment, back):
        """Returns the earliest time, at or after `back`, at which a job submitted at or after `moment` began to run."""
        with self.lock:
            names = [name for begun, _, name, _ in self.jobs if begun >= moment]
        return min((at for name in names for at in self.ran(name)[:1] if at >= back), default=None)

    def ran(self, name):
        try:
            with open(f"{self.cluster.work}/ran/{name}", encoding="ascii") as file:
                return [float(line) for line in file]
        except OSError:
            return []

    def verdict(self):
        """Returns the number of accepted jobs, and the lost, doubled and stuck jobs."""
        stuck = []
        try:
            until("all jobs have ended", 180, lambda: not self.cluster.ok("squeue", "-h").strip(), 0.5)
        except RuntimeError:
            stuck = self.cluster.ok("squeue", "-h", "-o", "%i %j %T %r").splitlines()
        rows = {}
        for row in self.cluster.ok("sacct", "-nPX", "-S", "now-1day", "-o", "JobName,JobID,State").splitlines():
            name, job, state = row.split("|")
            rows.setdefault(name, []).append((job, state))
        lost, doubled = [], []
        for _, _, name, job in self.jobs:
            runs, found = self.ran(name), rows.get(name, [])
            if not runs or (str(job), "COMPLETED") not in found:
                lost.append((name, job, runs, found))
            if len(runs) > 1 or len(found) > 1:
                doubled.append((name, job, runs, found))
        return len(self.jobs), lost, doubled, stuck


class Sruns:
    """Interactive steps that run while a fault happens."""

    def __init__(self, cluster, count=4):
        self.cluster, self.go = cluster, f"{cluster.work}/go-{time.time()}"
        line = f"echo begun; while [ ! -e {self.go} ]; do sleep 0.2; done; echo through"
        self.all = [subprocess.Popen(cluster.command("srun", "-n", "1", "sh", "-c", line), stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True, cwd=cluster.work, stdin=subprocess.DEVNULL)
                    for _ in range(count)]
        for srun in self.all:
            if srun.stdout.readline() != "begun\n":
                raise RuntimeError(f"an srun did not begin: {srun.stderr.read()}")

    def survivors(self):
        with open(self.go, "w", encoding="ascii"):
            pass
        survived, said = 0, []
        for srun in self.all:
            try:
                out, err = srun.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                srun.send_signal(signal.SIGKILL)
                out, err = srun.communicate()
            survived += srun.returncode == 0 and out == "through\n"
            said += [] if srun.returncode == 0 else [err.strip()]
        return survived, said

