//! A PostgreSQL server of a test's own, where PostgreSQL is installed.
//!
//! The server ends with the test's process, however that ends: a shell that holds the other end of a pipe
//! kills it.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Port of a server that does not listen for TCP, which names its socket.
const PORT: u16 = 5432;
/// Longest wait for a server to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Settings of a server besides its defaults.
#[derive(Debug, Default)]
pub struct Extra {
    /// Port at 127.0.0.1; `None` for a server that does not listen for TCP.
    pub port: Option<u16>,
    /// Lines of `postgresql.conf`.
    pub settings: String,
    /// Content of `pg_hba.conf`; if empty, every connection by the socket is trusted.
    pub access: String,
    /// Files that are copied into the data directory, readable by the server's user alone.
    pub files: Vec<PathBuf>,
}

/// A running server, whose files are in one directory. The directory is removed at the end of the test's
/// process.
pub struct Postgres {
    programs: PathBuf,
    directory: PathBuf,
    /// The user and group of the server; `None` for the test's own. PostgreSQL refuses to run as root.
    user: Option<(u32, u32)>,
    /// Port of the server, which is a part of the socket's name.
    port: u16,
    /// Ends the server when its standard input is closed.
    keeper: Child,
}

impl Postgres {
    /// The server that all tests of this process share; `None`, with a message on standard error, where
    /// PostgreSQL is not installed.
    ///
    /// # Panics
    /// If it is installed and cannot be started.
    pub fn shared() -> Option<&'static Postgres> {
        static SHARED: OnceLock<Option<Postgres>> = OnceLock::new();
        SHARED.get_or_init(Postgres::start).as_ref()
    }

    /// Starts a separate server; `None`, with a message on standard error, where PostgreSQL is not installed.
    ///
    /// # Panics
    /// If it is installed and cannot be started.
    pub fn start() -> Option<Postgres> {
        Postgres::start_with(&Extra::default())
    }

    /// Starts a server with these settings; `None` if PostgreSQL is not installed.
    ///
    /// # Panics
    /// If it is installed and cannot be started.
    pub fn start_with(extra: &Extra) -> Option<Postgres> {
        let Some(programs) = programs() else {
            eprintln!("SKIPPED: PostgreSQL is not installed (no initdb)");
            return None;
        };
        let user = (own_uid() == 0).then(|| id_of("postgres").unwrap_or((65_534, 65_534)));
        let name = format!("spur-postgres-{}-{:p}", std::process::id(), &raw const programs);
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("the temporary directory can be written");
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&directory, Some(uid), Some(gid)).expect("root may");
        }
        let data = directory.join("data");
        let mut initdb = as_user(&programs.join("initdb"), user);
        initdb.args(["--no-sync", "-A", "trust", "-U", "spur", "-E", "UTF8", "--locale=C", "-D"]).arg(&data);
        let made = initdb.output().expect("initdb can be run");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        put(&data, extra, user);
        let keeper = keep(&programs, &directory, user);
        let port = extra.port.unwrap_or(PORT);
        let server = Postgres { programs, directory, user, port, keeper };
        server.wait();
        Some(server)
    }

    /// Waits until the server answers.
    ///
    /// # Panics
    /// If it does not answer within a minute.
    pub fn wait(&self) {
        let until = Instant::now() + PATIENCE;
        while self.psql("postgres", "SELECT 1").is_err() {
            assert!(
                Instant::now() < until,
                "PostgreSQL does not start; see {}/log",
                self.directory.display()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes a new, empty database of this name and returns its URL.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn create(&self, database: &str) -> String {
        self.sql("postgres", &format!("DROP DATABASE IF EXISTS \"{database}\""));
        self.sql("postgres", &format!("CREATE DATABASE \"{database}\""));
        self.url(database)
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        let socket = self.directory.display().to_string().replace('/', "%2F");
        format!("postgres://spur@{socket}/{database}")
    }

    /// Runs statements in a database, and returns their output: a line for each row, `|` between columns.
    ///
    /// # Panics
    /// If one is refused.
    pub fn sql(&self, database: &str, statements: &str) -> String {
        self.psql(database, statements).unwrap_or_else(|refused| panic!("{statements}: {refused}"))
    }

    fn psql(&self, database: &str, statements: &str) -> Result<String, String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-XqtA", "-v", "ON_ERROR_STOP=1", "-U", "spur", "-d", database, "-h"])
            .arg(&self.directory)
            .args(["-p", &self.port.to_string()]);
        let said = psql.args(["-c", statements]).output().map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if said.status.success() { Ok(text(&said.stdout)) } else { Err(text(&said.stderr)) }
    }

    /// Sends a signal, by its name without SIG, to the server's first process, or to all of its processes.
    ///
    /// # Panics
    /// If there is none.
    pub fn signal(&self, signal: &str, all: bool) {
        let first = std::fs::read_to_string(self.directory.join("data/postmaster.pid")).expect("it runs");
        let first = first.lines().next().expect("its process id").to_owned();
        let mut kill = Command::new("kill");
        kill.args(["-s", signal, &first]);
        if all {
            let children = Command::new("pgrep").args(["-P", &first]).output().expect("procps are there");
            kill.args(String::from_utf8_lossy(&children.stdout).split_whitespace());
        }
        // A child may have ended since.
        let _ = kill.stderr(Stdio::null()).status().expect("kill can be run");
    }

    /// Kills the server as a loss of power would.
    ///
    /// # Panics
    /// If it does not end.
    pub fn kill(&mut self) {
        self.signal("KILL", true);
        // The keeper waits for the server.
        self.keeper.wait().expect("it is ours");
    }

    /// Starts the server again after [`Postgres::kill`].
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.keeper = keep(&self.programs, &self.directory, self.user);
        self.wait();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Writes the configuration of a new server.
fn put(data: &Path, extra: &Extra, user: Option<(u32, u32)>) {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    let conf = std::fs::OpenOptions::new().append(true).open(data.join("postgresql.conf"));
    let mut conf = conf.expect("initdb has made it");
    let listen = extra.port.map_or(String::new(), |port| format!("127.0.0.1'\nport = '{port}"));
    let settings = format!("\nlisten_addresses = '{listen}'\nmax_connections = 200\n{}\n", extra.settings);
    conf.write_all(settings.as_bytes()).expect("the temporary directory can be written");
    if !extra.access.is_empty() {
        std::fs::write(data.join("pg_hba.conf"), &extra.access)
            .expect("the temporary directory can be written");
    }
    for file in &extra.files {
        let copy = data.join(file.file_name().expect("it names a file"));
        std::fs::copy(file, &copy).expect("the file is there");
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).expect("the copy is ours");
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&copy, Some(uid), Some(gid)).expect("root may");
        }
    }
}

/// Starts the server, and a shell that ends the server when the shell's standard input is closed. The
/// shell removes the directory only if the test's process has ended, since the test may start the server
/// again.
fn keep(programs: &Path, directory: &Path, user: Option<(u32, u32)>) -> Child {
    let script = r#"
        "$1/postgres" -D "$2/data" -k "$2" >>"$2/log" 2>&1 </dev/null &
        server=$!
        (cat >/dev/null; kill -QUIT $server; while kill -0 $server; do sleep 0.1; done
         [ -d "/proc/$3" ] || rm -rf "$2") 2>/dev/null <&3 &
        exec 3<&-
        wait $server"#;
    let mut shell = as_user(Path::new("/bin/sh"), user);
    shell.args(["-c", &format!("exec 3<&0\n{script}"), "keeper"]).arg(programs).arg(directory);
    shell.arg(std::process::id().to_string()).stdin(Stdio::piped()).stdout(Stdio::null());
    shell.spawn().expect("there is a shell")
}

fn as_user(program: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/");
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// The directory of PostgreSQL's programs: the newest of Debian's versions, or the one that contains
/// `initdb`.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut places: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    places.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    places.reverse();
    places.into_iter().chain(std::env::split_paths(&path)).find(|place| place.join("initdb").is_file())
}

fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").map_or(0, |own| own.uid())
}

/// The numbers of a user and of its group.
fn id_of(user: &str) -> Option<(u32, u32)> {
    let number = |option| {
        let said = Command::new("id").args([option, user]).output().ok()?;
        String::from_utf8_lossy(&said.stdout).trim().parse().ok()
    };
    Some((number("-u")?, number("-g")?))
}
