//! What a command works with: its name, its environment, where it writes, and the way to the controller.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};

use nix::unistd::{Uid, User};
use spur_proto::client::Connection;
use spur_proto::v1::TokenClaims;

use crate::out::Out;
use crate::settings::Settings;

/// The surroundings of one command.
pub struct Session {
    /// The name by which it was called, e.g. `sbatch`.
    pub name: &'static str,
    /// Where results go.
    pub out: Out,
    /// Where complaints go in tests and simulations; the standard error otherwise.
    complaints: Option<Out>,
    /// The standard error is a terminal that needs to be told to go back to the beginning of a line.
    raw: bool,
    environment: BTreeMap<OsString, OsString>,
    connection: Option<Connection>,
    /// What Slurm's command says before why the controller gives no answer, instead of its name.
    asking: Option<&'static str>,
    /// Whether users are those of this host.
    of_host: bool,
}

impl Session {
    /// With the environment and the standard streams of this process.
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

    /// With everything in memory, for tests and simulations.
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

    /// A variable of the environment, if it is set and UTF-8.
    pub fn env(&self, name: &str) -> Option<String> {
        self.environment.get(OsStr::new(name))?.to_str().map(str::to_owned)
    }

    /// Whether this host knows a user, by name or number. Where everything is in memory, users are not those of a host.
    pub fn knows_user(&self, name: &str) -> bool {
        let by_number = || User::from_uid(Uid::from_raw(name.parse().ok()?)).ok().flatten();
        // A host that cannot tell knows everybody.
        !self.of_host || User::from_name(name).map_or(true, |found| found.is_some()) || by_number().is_some()
    }

    /// Whether the terminal passes everything through as it is from now on.
    pub fn set_raw(&mut self, raw: bool) {
        self.raw = raw;
    }

    /// Sets variables for what is done and launched from now on.
    pub fn set_env(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        self.environment.extend(variables);
    }

    /// The environment.
    pub fn environment(&self) -> &BTreeMap<OsString, OsString> {
        &self.environment
    }

    /// Tells what is asked of the controller, in the words with which Slurm says that there was no answer. Programs look for
    /// them to tell a controller that is away from a job that is gone. `None`: the command's name.
    pub fn asks(&mut self, asking: impl Into<Option<&'static str>>) {
        self.asking = asking.into();
    }

    /// What stands before why the controller gives no answer.
    pub fn unanswered(&self) -> String {
        self.asking.map_or_else(|| format!("{}: error", self.name), str::to_owned)
    }

    /// The way to the controller; the configuration is read when it is first asked for.
    ///
    /// # Errors
    /// A configuration that cannot be read.
    pub fn connection(&mut self) -> anyhow::Result<&mut Connection> {
        if self.connection.is_none() {
            let settings = Settings::load(&|name| self.env(name))?;
            let mut connection = open(&settings)?;
            let unanswered = self.unanswered();
            connection.set_notice(move |why| {
                // A terminal that passes everything through needs to be told to go back to the beginning of a line.
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

    /// The same command at another cluster, whose results and complaints are kept in memory.
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

    /// Asks another cluster from now on.
    pub fn go_to(&mut self, connection: Connection) {
        self.connection = Some(connection);
    }

    /// `name: error: text` on the standard error.
    pub fn error(&mut self, text: &str) {
        let name = self.name;
        self.say(&format!("{name}: error: {text}"));
    }

    /// `name: warning: text` on the standard error.
    pub fn warn(&mut self, text: &str) {
        let name = self.name;
        self.say(&format!("{name}: warning: {text}"));
    }

    /// `name: text` on the standard error.
    pub fn inform(&mut self, text: &str) {
        let name = self.name;
        self.say(&format!("{name}: {text}"));
    }

    /// A line on the standard error. That nobody reads it is no reason to fail.
    pub fn say(&mut self, line: &str) {
        let _ = match &mut self.complaints {
            Some(complaints) => writeln!(complaints, "{line}"),
            None => writeln!(std::io::stderr(), "{line}{}", if self.raw { "\r" } else { "" }),
        };
    }

    /// Output and standard error, to write to both.
    pub fn streams(&mut self) -> (&mut Out, Box<dyn Write + '_>) {
        let complaints: Box<dyn Write> = match &mut self.complaints {
            Some(complaints) => Box::new(complaints),
            None => Box::new(std::io::stderr()),
        };
        (&mut self.out, complaints)
    }

    /// What was said so far, where it is kept in memory.
    pub fn take_complaints(&mut self) -> String {
        self.complaints.as_mut().map(Out::take_text).unwrap_or_default()
    }
}

/// The way to a cluster; nothing is connected before the first call.
///
/// # Errors
/// A file of certificates that cannot be used.
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

/// The same with the user's other groups, for a cluster where whoever connects is believed.
fn claims() -> TokenClaims {
    let own = whoami();
    let others = rustix::process::getgroups().unwrap_or_default();
    let others = others.iter().map(|group| group.as_raw()).filter(|group| *group != own.gid);
    TokenClaims { groups: others.filter_map(|group| name_of(group, "/etc/group")).collect(), ..own }
}

/// The name in the first field of the line whose third is `id`.
fn name_of(id: u32, file: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let id = id.to_string();
    let line = text.lines().find(|line| line.split(':').nth(2) == Some(&id))?;
    line.split(':').next().map(str::to_owned)
}
