//! Context of a command: its name, its environment, its output, and its connection to the controller.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};

use nix::unistd::{Uid, User};
use spur_proto::client::Connection;
use spur_proto::v1::TokenClaims;

use crate::out::Out;
use crate::settings::Settings;

/// Context of one command.
pub struct Session {
    /// Name under which the command was called, e.g. `sbatch`.
    pub name: &'static str,
    /// Output of results.
    pub out: Out,
    /// Output of messages in tests and simulations; `None` for the standard error.
    complaints: Option<Out>,
    /// True if the standard error is a terminal in raw mode, where each line needs a carriage return.
    raw: bool,
    environment: BTreeMap<OsString, OsString>,
    connection: Option<Connection>,
    /// Slurm's text for an unanswered request, used in place of the command's name.
    asking: Option<&'static str>,
    /// True if a user that this host does not know is invalid; false in tests and simulations.
    of_host: bool,
}

impl Session {
    /// Returns a session with the environment and the standard streams of this process.
    pub fn from_process(name: &'static str) -> Session {
        let environment = std::env::vars_os().collect();
        Session {
            name,
            out: Out::standard(),
            complaints: None,
            raw: false,
            environment,
            connection: None,
            asking: None,
            of_host: true,
        }
    }

    /// Returns a session with environment and output in memory, for tests and simulations.
    pub fn in_memory(
        name: &'static str,
        environment: BTreeMap<String, String>,
        connection: Option<Connection>,
    ) -> Session {
        let environment = environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Session {
            name,
            out: Out::memory(),
            complaints: Some(Out::memory()),
            raw: false,
            environment,
            connection,
            asking: None,
            of_host: false,
        }
    }

    /// Returns a variable of the environment, if it is set and UTF-8.
    pub fn env(&self, name: &str) -> Option<String> {
        self.environment.get(OsStr::new(name))?.to_str().map(str::to_owned)
    }

    /// True if this host knows the user, by name or uid. In memory every user is known.
    pub fn knows_user(&self, name: &str) -> bool {
        let by_number = || User::from_uid(Uid::from_raw(name.parse().ok()?)).ok().flatten();
        // If the host's database of users cannot be read, every user counts as known.
        !self.of_host || User::from_name(name).map_or(true, |found| found.is_some()) || by_number().is_some()
    }

    /// Sets whether the terminal is in raw mode.
    pub fn set_raw(&mut self, raw: bool) {
        self.raw = raw;
    }

    /// Sets environment variables for later calls and programs.
    pub fn set_env(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        self.environment.extend(variables);
    }

    /// Returns the environment.
    pub fn environment(&self) -> &BTreeMap<OsString, OsString> {
        &self.environment
    }

    /// Sets the text that precedes the error of an unanswered request, in Slurm's words. Programs use it to
    /// distinguish an unavailable controller from an unknown job. `None` stands for the command's name.
    pub fn asks(&mut self, asking: impl Into<Option<&'static str>>) {
        self.asking = asking.into();
    }

    /// Returns the text that precedes the error of an unanswered request.
    pub fn unanswered(&self) -> String {
        self.asking.map_or_else(|| format!("{}: error", self.name), str::to_owned)
    }

    /// Returns the connection to the controller; the first call reads the configuration.
    ///
    /// # Errors
    /// A configuration that cannot be read.
    pub fn connection(&mut self) -> anyhow::Result<&mut Connection> {
        if self.connection.is_none() {
            let settings = Settings::load(&|name| self.env(name))?;
            let mut connection = open(&settings)?;
            let unanswered = self.unanswered();
            connection.set_notice(move |why| {
                // In raw mode, each line needs a carriage return.
                let end = if std::io::stderr().is_terminal() { "\r" } else { "" };
                let _ = writeln!(std::io::stderr(), "{unanswered}: {why}; trying again{end}");
            });
            let (name, show) = (self.name, crate::commands::query::show(&|name| self.env(name)).ok());
            connection.set_old_notice(move |since| {
                let since = show.as_ref().map(|show| crate::format::value::time(Some(since), "", show));
                let since = since.unwrap_or_default();
                let since = since.rsplit('T').next().unwrap_or_default();
                let _ = writeln!(std::io::stderr(), "{name}: warning: as of {since}, the database is away");
            });
            self.connection = Some(connection);
        }
        Ok(self.connection.as_mut().expect("it was made above"))
    }

    /// Returns a session of the same command at another cluster, which keeps its results and complaints in
    /// memory.
    #[must_use]
    pub fn at(&self, connection: Connection) -> Session {
        Session {
            name: self.name,
            out: Out::memory(),
            complaints: Some(Out::memory()),
            raw: false,
            environment: self.environment.clone(),
            connection: Some(connection),
            asking: self.asking,
            of_host: self.of_host,
        }
    }

    /// Replaces the connection: all later calls go to another cluster.
    pub fn go_to(&mut self, connection: Connection) {
        self.connection = Some(connection);
    }

    /// `name: error: text` on the standard error.
    pub fn error(&mut self, text: &str) {
        let name = self.name;
        self.say(&format!("{name}: error: {text}"));
    }

    /// Prints `name: warning: text` on the standard error.
    pub fn warn(&mut self, text: &str) {
        let name = self.name;
        self.say(&format!("{name}: warning: {text}"));
    }

    /// Prints `name: text` on the standard error.
    pub fn inform(&mut self, text: &str) {
        let name = self.name;
        self.say(&format!("{name}: {text}"));
    }

    /// Prints a line on the standard error; a closed stream is ignored.
    pub fn say(&mut self, line: &str) {
        let _ = match &mut self.complaints {
            Some(complaints) => writeln!(complaints, "{line}"),
            None => writeln!(std::io::stderr(), "{line}{}", if self.raw { "\r" } else { "" }),
        };
    }

    /// Returns the output and the standard error, for writing to both.
    pub fn streams(&mut self) -> (&mut Out, Box<dyn Write + '_>) {
        let complaints: Box<dyn Write> = match &mut self.complaints {
            Some(complaints) => Box::new(complaints),
            None => Box::new(std::io::stderr()),
        };
        (&mut self.out, complaints)
    }

    /// Takes the messages kept in memory; empty for the standard error.
    pub fn take_complaints(&mut self) -> String {
        self.complaints.as_mut().map(Out::take_text).unwrap_or_default()
    }
}

/// Returns a connection to a cluster, which is opened by the first call.
///
/// # Errors
/// Fails if a file of certificates cannot be used.
pub fn open(settings: &Settings) -> anyhow::Result<Connection> {
    Ok(Connection::new(&settings.controllers, settings.identity(claims)?)?)
}

/// The user of this process as the kernel and `/etc/passwd` know them.
pub fn whoami() -> TokenClaims {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let user = name_of(uid, "/etc/passwd").or_else(|| std::env::var("USER").ok());
    let group = name_of(gid, "/etc/group");
    TokenClaims {
        uid,
        gid,
        user: user.unwrap_or_else(|| uid.to_string()),
        group: group.unwrap_or_else(|| gid.to_string()),
        ..TokenClaims::default()
    }
}

/// Returns the user with supplementary groups, for a cluster that accepts unsigned claims.
fn claims() -> TokenClaims {
    let own = whoami();
    let others = rustix::process::getgroups().unwrap_or_default();
    let others = others.iter().map(|group| group.as_raw()).filter(|group| *group != own.gid);
    TokenClaims { groups: others.filter_map(|group| name_of(group, "/etc/group")).collect(), ..own }
}

/// Returns the name in the first field of the line whose third field is `id`; `None` without such a line.
fn name_of(id: u32, file: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let id = id.to_string();
    let line = text.lines().find(|line| line.split(':').nth(2) == Some(&id))?;
    line.split(':').next().map(str::to_owned)
}
