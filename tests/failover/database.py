"""PostgreSQL for the controllers: one server, or two under Patroni with three etcd members, both with TLS."""
import glob
import json
import os
import signal
import subprocess

from hosts import HOSTS, Hosts, address, command, until

PASSWORD = "a-password-for-trials"
USER = "postgres"


def programs():
    return max(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda place: int(place.split("/")[-2]))


def certificates(work):
    """An authority, a certificate for every host, and one for the database user `spur`."""
    place = f"{work}/tls"
    os.makedirs(place)

    def openssl(*words):
        command("openssl", *words, cwd=place)

    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
            "-subj", "/CN=authority of a trial", "-keyout", "ca.key", "-out", "ca.pem")
    for name, subject, names in [*((host, f"/CN={host}", f"IP:{address(host)}") for host in HOSTS),
                                 ("spur", "/CN=spur", "DNS:spur")]:
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", subject,
                "-keyout", f"{name}.key", "-out", f"{name}.csr")
        with open(f"{place}/{name}.ext", "w", encoding="ascii") as file:
            file.write(f"subjectAltName = {names}\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days",
                "30", "-extfile", f"{name}.ext", "-out", f"{name}.pem")
        os.chmod(f"{place}/{name}.key", 0o600)
    command("chown", "-R", USER, place)
    command("install", "-m", "600", f"{place}/spur.key", f"{work}/spur.key")
    return place


def server_settings(tls, host):
    return {
        "ssl": "on", "ssl_cert_file": f"{tls}/{host}.pem", "ssl_key_file": f"{tls}/{host}.key",
        "ssl_ca_file": f"{tls}/ca.pem", "max_connections": "100", "fsync": "on", "full_page_writes": "on",
        "synchronous_commit": "on",
    }


# Controllers authenticate by password, or by certificate for the database that requires one.
HBA = ["local all all trust", "host all all 127.0.0.1/32 trust", "hostssl certified all 0.0.0.0/0 cert",
       "hostssl all all 0.0.0.0/0 scram-sha-256", "hostssl replication all 0.0.0.0/0 scram-sha-256"]


class Single:
    """One server on the host `db`, on a small file system of its own."""

    hosts_of_servers = ["db"]

    def __init__(self, hosts, size="400m"):
        self.hosts, self.work, self.bin = hosts, hosts.work, programs()
        self.tls = certificates(self.work)
        self.disk = f"{self.work}/disk"
        os.makedirs(self.disk)
        command("mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", self.disk)
        self.data = f"{self.disk}/data"
        os.makedirs(self.data)
        command("chown", USER, self.data)
        command("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", f"{self.bin}/initdb", "--no-sync",
                "-A", "trust", "-E", "UTF8", "--locale=C", "-D", self.data, cwd="/")
        with open(f"{self.data}/pg_hba.conf", "w", encoding="ascii") as file:
            file.write("\n".join(HBA) + "\n")
        self.start()
        self.sql(f"CREATE ROLE spur LOGIN PASSWORD '{PASSWORD}'")
        for database in ["spur", "certified"]:
            self.sql(f"CREATE DATABASE {database} OWNER spur")

    def start(self):
        settings = [f"-c{name}={value}" for name, value in server_settings(self.tls, "db").items()]
        self.hosts.start("postgres", "db", f"{self.bin}/postgres", "-D", self.data, "-k", self.data,
                         "-clisten_addresses=*", "-cmax_wal_size=64MB", "-cmin_wal_size=32MB", *settings, user=USER)
        until("PostgreSQL answers", 60, lambda: self.psql("SELECT 1").returncode == 0)

    def psql(self, statement, database="postgres"):
        words = [f"{self.bin}/psql", "-XqtA", "-h", self.data, "-U", USER, "-d", database, "-c", statement]
        return subprocess.run(words, capture_output=True, text=True, timeout=60)

    def sql(self, statement, database="postgres"):
        done = self.psql(statement, database)
        if done.returncode != 0:
            raise RuntimeError(f"{statement}: {done.stderr}")
        return done.stdout.strip()

    def primary(self):
        return "db"

    def pids(self):
        """Returns the ids of the server's processes, including workers, which have their own sessions."""
        with open(f"{self.data}/postmaster.pid", encoding="ascii") as file:
            first = int(file.readline())
        children = command("pgrep", "-P", str(first), check=False).stdout.split()
        return [first, *map(int, children)]

    def signal(self, number):
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        self.signal(signal.SIGKILL)
        self.hosts.processes.pop("postgres").wait()

    def fill(self):
        """Fills the server's file system."""
        with open(f"{self.disk}/filler", "wb") as file:
            try:
                while True:
                    file.write(b"\0" * (1 << 16))
                    file.flush()
            except OSError:
                pass

    def make_space(self):
        os.remove(f"{self.disk}/filler")

    def end(self):
        command("umount", "-l", self.disk, check=False)


class Patroni:
    """Two servers, on `head1` and `head2`, and etcd there and on `vote`."""

    hosts_of_servers = ["head1", "head2"]

    def __init__(self, hosts, synchronous=True):
        self.hosts, self.work, self.bin = hosts, hosts.work, programs()
        self.synchronous = synchronous
        self.tls = certificates(self.work)
        for member in ["head1", "head2", "vote"]:
            self.start_etcd(member)
        until("etcd has a leader", 60, lambda: self.etcdctl("endpoint", "health").returncode == 0)
        for host in self.hosts_of_servers:
            self.configure(host)
            self.start(host)
        until("a primary and a replica", 180, lambda: self.primary() and self.roles().count("replica") == 1)
        self.wait_for_replica()
        self.sql(f"CREATE ROLE spur LOGIN PASSWORD '{PASSWORD}'")
        self.sql("CREATE DATABASE spur OWNER spur")

    def start_etcd(self, member):
        at, peers = address(member), ",".join(f"{m}=http://{address(m)}:2380" for m in ["head1", "head2", "vote"])
        self.hosts.start(
            f"etcd-{member}", member, "etcd", "--name", member, "--data-dir", f"{self.work}/etcd-{member}",
            "--listen-peer-urls", f"http://{at}:2380", "--initial-advertise-peer-urls", f"http://{at}:2380",
            "--listen-client-urls", f"http://{at}:2379", "--advertise-client-urls", f"http://{at}:2379",
            "--initial-cluster", peers, "--initial-cluster-token", "spur", "--enable-v2=true", "--log-level", "warn")

    def etcdctl(self, *words):
        endpoints = ",".join(f"http://{address(m)}:2379" for m in ["head1", "head2", "vote"])
        return command(*Hosts.on("vote", "etcdctl", "--endpoints", endpoints, *words), check=False,
                       env={**os.environ, "ETCDCTL_API": "3"})

    def configure(self, host):
        at, data, run = address(host), f"{self.work}/{host}-data", f"{self.work}/{host}-run"
        for place in [data, run]:
            os.makedirs(place, mode=0o700)
            command("chown", USER, place)
        self.write(f"{self.work}/patroni-{host}.json", {
            "scope": "spur", "name": host,
            "restapi": {"listen": f"{at}:8008", "connect_address": f"{at}:8008"},
            "etcd3": {"hosts": [f"{address(m)}:2379" for m in ["head1", "head2", "vote"]]},
            "bootstrap": {
                "dcs": {
                    "ttl": 20, "loop_wait": 5, "retry_timeout": 5, "synchronous_mode": self.synchronous,
                    "postgresql": {"use_pg_rewind": True, "parameters": {"wal_log_hints": "on"}},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"{at},127.0.0.1:5432", "connect_address": f"{at}:5432", "data_dir": data,
                "bin_dir": self.bin, "pgpass": f"{run}/pgpass", "pg_hba": HBA,
                "parameters": {**server_settings(self.tls, host), "unix_socket_directories": run},
                "authentication": {
                    "superuser": {"username": "postgres", "password": PASSWORD},
                    "replication": {"username": "replicator", "password": PASSWORD},
                },
            },
        })

    @staticmethod
    def write(path, document):
        # A JSON document is also a YAML document.
        with open(path, "w", encoding="ascii") as file:
            json.dump(document, file, indent=1)
        command("chown", USER, path)

    def start(self, host):
        self.hosts.start(f"patroni-{host}", host, "/usr/bin/python3", "/usr/bin/patroni",
                         f"{self.work}/patroni-{host}.json", user=USER, env={"HOME": self.work})

    def state(self, host):
        words = Hosts.on("vote", "/usr/bin/python3", "-c", "import sys, urllib.request as u; "
                         "print(u.urlopen(sys.argv[1], timeout=2).read().decode())",
                         f"http://{address(host)}:8008/patroni")
        done = command(*words, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def roles(self):
        states = [self.state(host) for host in self.hosts_of_servers]
        return ["" if state.get("state") != "running" else state["role"] for state in states]

    def primary(self):
        roles = self.roles()
        found = [host for host, role in zip(self.hosts_of_servers, roles) if role in ("master", "primary")]
        return found[0] if found else None

    def wait_for_replica(self):
        def is_synchronous():
            primary = self.primary()
            replicas = self.state(primary).get("replication", []) if primary else []
            wanted = "sync" if self.synchronous else "async"
            return any(one.get("state") == "streaming" and one.get("sync_state") == wanted for one in replicas)
        return until("the replica streams", 180, is_synchronous, 0.5)

    def psql(self, statement, database="postgres"):
        host = self.primary()
        words = Hosts.on(host, f"{self.bin}/psql", "-XqtA", "-h", "127.0.0.1", "-U", USER, "-d", database, "-c", statement)
        return subprocess.run(words, capture_output=True, text=True, timeout=60)

    sql = Single.sql

    def lose(self, host):
        """Kills PostgreSQL and Patroni of a host at once."""
        with open(f"{self.work}/{host}-data/postmaster.pid", encoding="ascii") as file:
            first = int(file.readline())
        children = [int(pid) for pid in command("pgrep", "-P", str(first), check=False).stdout.split()]
        self.hosts.signal(f"patroni-{host}", signal.SIGKILL)
        for pid in [first, *children]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.hosts.processes.pop(f"patroni-{host}").wait()

    def end(self):
        pass
