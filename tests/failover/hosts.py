"""Hosts that are network namespaces on one bridge, and the programs that run on them."""
import fcntl
import os
import shutil
import signal
import subprocess
import time

BRIDGE = "spurha"
NETWORK = "10.77.0"
HOSTS = {"head1": 1, "head2": 2, "vote": 3, "db": 4, "nodes": 10}


def address(host):
    return f"{NETWORK}.{HOSTS[host]}"


def command(*words, check=True, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return done


def until(what, seconds, test, pause=0.05):
    """Waits until `test` is true. Returns the seconds waited."""
    begun = time.monotonic()
    while not test():
        if time.monotonic() - begun > seconds:
            raise RuntimeError(f"this did not come about in {seconds} s: {what}")
        time.sleep(pause)
    return time.monotonic() - begun


class Hosts:
    """The namespaces, and every process that was started in one of them."""

    def __init__(self, work):
        self.work = work
        self.processes = {}
        # Two concurrent runs would remove each other's namespaces.
        self.lock = open(f"/run/lock/{BRIDGE}", "w", encoding="ascii")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.remove()
        command("ip", "link", "add", BRIDGE, "type", "bridge")
        command("ip", "link", "set", BRIDGE, "up")
        for host in HOSTS:
            command("ip", "netns", "add", self.namespace(host))
            command("ip", "link", "add", f"{BRIDGE}-{HOSTS[host]}", "type", "veth", "peer", "name", "eth0",
                    "netns", self.namespace(host))
            inside = ("ip", "-n", self.namespace(host))
            command(*inside, "address", "add", f"{address(host)}/24", "dev", "eth0")
            command(*inside, "link", "set", "eth0", "up")
            command(*inside, "link", "set", "lo", "up")
            command("ip", "link", "set", f"{BRIDGE}-{HOSTS[host]}", "up")
            self.connect(host)

    @staticmethod
    def namespace(host):
        return f"{BRIDGE}-{host}"

    @staticmethod
    def connect(host):
        command("ip", "link", "set", f"{BRIDGE}-{HOSTS[host]}", "master", BRIDGE)

    @staticmethod
    def cut_off(host):
        """Drops all packets of a host, so that no connection is closed at either end."""
        command("ip", "link", "set", f"{BRIDGE}-{HOSTS[host]}", "nomaster")

    @classmethod
    def on(cls, host, *words):
        return ["ip", "netns", "exec", cls.namespace(host), *words]

    def start(self, name, host, *words, env=None, user=None):
        """Starts a program on a host. Its output goes into a file of its name."""
        log = open(f"{self.work}/{name}.log", "ab", buffering=0)
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        environment = {**os.environ, **(env or {})}
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host]
        process = subprocess.Popen(self.on(host, *named, *as_user, *words), stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=log, env=environment, start_new_session=True, cwd=self.work)
        log.close()
        self.processes[name] = process
        return process

    def signal(self, name, number):
        """Signals a program and all that it has started in its session."""
        process = self.processes[name]
        for pid in session_of(process.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self, name):
        self.signal(name, signal.SIGKILL)
        self.processes.pop(name).wait()

    def end(self):
        for name, process in list(self.processes.items()):
            self.signal(name, signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                pass
        self.remove()
        self.lock.close()

    @classmethod
    def remove(cls):
        for host in HOSTS:
            # Steps and servers have their own sessions, so their processes are found by namespace.
            for pid in command("ip", "netns", "pids", cls.namespace(host), check=False).stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            command("ip", "netns", "delete", cls.namespace(host), check=False)
            command("ip", "link", "delete", f"{BRIDGE}-{HOSTS[host]}", check=False)
        command("ip", "link", "delete", BRIDGE, check=False)


def session_of(leader):
    """Returns the ids of the processes in the session of `leader`."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader:
            found.append(int(entry))
    return found


def pressure():
    """Returns the percentage of the last ten seconds in which a task waited for a processor."""
    try:
        with open("/proc/pressure/cpu", encoding="ascii") as file:
            return float(file.readline().split("avg10=")[1].split()[0])
    except OSError:
        return float("nan")


def needs(*programs):
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [program for program in programs if not shutil.which(program, path=path)]
    if os.geteuid() != 0:
        missing.append("root")
    return missing
