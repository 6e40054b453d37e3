//! The part of `spur.toml` that commands need: the controller's addresses and the way to authenticate.
//!
//! The file of a large cluster is long and a command is short-lived, so only the three relevant tables are
//! parsed. The daemons parse the whole file and refuse unknown keys.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::unistd::User;
use serde::Deserialize;
use spur_core::model::config::{AuthLocal, Config, ControllerLocal};
use spur_core::text::address::HostPort;
use spur_proto::channel::Dialer;
use spur_proto::client::Identity;
use spur_proto::tls;
use spur_proto::v1::TokenClaims;

/// Addresses of the controller and the way to authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Possible addresses of the controller, in the order to try.
    pub controllers: Vec<HostPort>,
    method: Method,
    socket: PathBuf,
    /// User besides root whose daemon may serve the socket.
    daemons: Option<u32>,
    /// Certificates of controllers, if `[tls]` requires them.
    certificates: Option<Certificates>,
}

/// The clusters that a configuration names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clusters {
    /// The name of the own cluster; `None` if the file does not set it.
    pub own: Option<String>,
    /// The other clusters, by name, in the order of the file.
    pub others: Vec<(String, Settings)>,
}

/// The certificates of controllers that commands trust: their authority, and the names that they may bear.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Certificates {
    ca_file: PathBuf,
    names: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Method {
    #[default]
    Key,
    None,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    cluster_name: Option<String>,
    clusters: Vec<ClusterTable>,
    controller: ControllerTable,
    auth: AuthTable,
    tls: TlsTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ControllerTable {
    listen_addr: Option<String>,
    addr: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClusterTable {
    name: String,
    addr: String,
    socket: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    controller_names: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AuthTable {
    method: Method,
    socket: Option<PathBuf>,
    user: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TlsTable {
    controller_names: Vec<String>,
    ca_file: Option<PathBuf>,
    listen_addr: Option<String>,
    addr: Option<String>,
}

impl Settings {
    /// Reads settings from the file and the environment: `SPUR_CONF` names the file, and `SPUR_CONTROLLER`
    /// overrides the address.
    ///
    /// # Errors
    /// A file that cannot be read, invalid settings or addresses, or neither a file nor an address.
    pub fn load(env: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Settings> {
        let (told, path) = file_of(env);
        let controllers = env("SPUR_CONTROLLER").filter(|list| !list.is_empty());
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if !told && error.kind() == std::io::ErrorKind::NotFound => {
                if controllers.is_none() {
                    bail!(
                        "there is no {}; set SPUR_CONF to the cluster's spur.toml, or SPUR_CONTROLLER to the \
                         controller's address",
                        Config::DEFAULT_FILE
                    );
                }
                String::new()
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        Settings::read(&text, controllers.as_deref(), &path)
    }

    fn read(text: &str, controllers: Option<&str>, path: &Path) -> anyhow::Result<Settings> {
        let file = File::read(text, path)?;
        let place = |key: &str| format!("{}: {key}", path.display());
        let certified = file.tls.ca_file.is_some();
        let default = ControllerLocal::default().listen_addr.to_string();
        let (list, whose) = match (controllers, &file.controller) {
            (Some(list), _) => (list, "SPUR_CONTROLLER".to_owned()),
            (None, _) if certified => match file.tls.addr.as_ref().or(file.tls.listen_addr.as_ref()) {
                Some(list) => (list.as_str(), place("tls.addr")),
                None => bail!("{}: tls.ca_file needs tls.addr", path.display()),
            },
            (None, ControllerTable { addr: Some(list), .. }) => (list.as_str(), place("controller.addr")),
            (None, ControllerTable { listen_addr: Some(list), .. }) => {
                (list.as_str(), place("controller.listen_addr"))
            }
            (None, _) => (default.as_str(), place("controller.listen_addr")),
        };
        let mut controllers = HostPort::parse_list(list).with_context(|| whose)?;
        for address in &mut controllers {
            reach(address);
        }
        let socket = file.auth.socket.unwrap_or_else(|| AuthLocal::default().socket);
        let daemons = match file.auth.user {
            Some(user) => Some(user_number(&user).with_context(|| {
                format!("{}: auth.user: this host knows no user `{user}`", path.display())
            })?),
            None => None,
        };
        let names = file.tls.controller_names;
        let certificates = file.tls.ca_file.map(|ca_file| Certificates { ca_file, names });
        Ok(Settings { controllers, method: file.auth.method, socket, daemons, certificates })
    }

    /// Returns the name of the own cluster and the other clusters of the configuration file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if a cluster has no valid address.
    pub fn clusters(env: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Clusters> {
        let (_, path) = file_of(env);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Clusters::default()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        Settings::read_clusters(&text, &path)
    }

    fn read_clusters(text: &str, path: &Path) -> anyhow::Result<Clusters> {
        let file = File::read(text, path)?;
        let own = Settings::read(text, None, path)?;
        let mut others = Vec::with_capacity(file.clusters.len());
        for ClusterTable { name, addr, socket, ca_file, controller_names } in file.clusters {
            let place = || format!("{}: [[clusters]] {name}", path.display());
            let mut controllers =
                HostPort::parse_list(&addr).with_context(|| format!("{}: addr", place()))?;
            controllers.iter_mut().for_each(reach);
            if own.method == Method::Key && socket.is_some() == ca_file.is_some() {
                bail!("{}: say one of socket and ca_file", place());
            }
            let certificates = ca_file.map(|ca_file| Certificates { ca_file, names: controller_names });
            // Without a socket of that cluster on this host, tokens of the own cluster are used.
            let socket = socket.unwrap_or_else(|| own.socket.clone());
            let (method, daemons) = (own.method, own.daemons);
            others.push((name, Settings { controllers, method, socket, daemons, certificates }));
        }
        Ok(Clusters { own: file.cluster_name, others })
    }

    /// Returns the way in which commands authenticate. `user` is called only with authentication by method
    /// `none`.
    ///
    /// # Errors
    /// Fails if a file of certificates cannot be used.
    pub fn identity(&self, user: impl FnOnce() -> TokenClaims) -> anyhow::Result<Identity> {
        let certified = self.certificates.as_ref().map(|Certificates { ca_file, names }| {
            let config = tls::certificate_client(ca_file, names)?;
            anyhow::Ok(Dialer::certified(config, names.first().map_or("", String::as_str)))
        });
        Ok(match self.method {
            Method::None => Identity::Unsigned(user()),
            Method::Key => Identity::Socket {
                path: self.socket.clone(),
                served_by: self.daemons.into_iter().collect(),
                certified: certified.transpose()?,
            },
        })
    }
}

impl File {
    /// Parses the tables of a configuration file that commands need.
    fn read(text: &str, path: &Path) -> anyhow::Result<File> {
        let wanted = only_tables(text, &["controller", "auth", "tls", "clusters"]);
        toml::from_str(&wanted).with_context(|| format!("{}", path.display()))
    }
}

/// Returns true if `SPUR_CONF` names the configuration file, and the path of the file.
fn file_of(env: &dyn Fn(&str) -> Option<String>) -> (bool, PathBuf) {
    let told = env("SPUR_CONF").filter(|path| !path.is_empty());
    (told.is_some(), PathBuf::from(told.as_deref().unwrap_or(Config::DEFAULT_FILE)))
}

/// The number of a user, who may be written as one.
fn user_number(user: &str) -> Option<u32> {
    let by_name = || User::from_name(user).ok().flatten().map(|user| user.uid.as_raw());
    user.parse().ok().or_else(by_name)
}

/// Replaces the address of all interfaces by the loopback address.
fn reach(address: &mut HostPort) {
    match address.host.as_str() {
        "0.0.0.0" => address.host = "127.0.0.1".to_owned(),
        "::" => address.host = "::1".to_owned(),
        _ => {}
    }
}

/// Returns the lines of the tables `names` with their headers, and that of `cluster_name`. All other lines
/// are emptied, so that line numbers in errors stay correct.
fn only_tables(text: &str, names: &[&str]) -> String {
    let mut kept = String::new();
    let (mut keep, mut is_top) = (false, true);
    for line in text.lines() {
        if let Some(header) = header(line) {
            (keep, is_top) = (names.contains(&header), false);
        }
        if keep || is_top && line.trim_start().starts_with("cluster_name") {
            kept.push_str(line);
        }
        kept.push('\n');
    }
    kept
}

/// Returns the name in a line `[name]` or `[[name]]`; `None` for other lines.
fn header(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = line.split_once('#').map_or(line, |(line, _)| line.trim_end());
    let inside = line.strip_prefix('[')?.strip_suffix(']')?;
    Some(inside.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(inside).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = r#"
cluster_name = "demo"
nonsense that nobody reads here

[controller]  # where it is
listen_addr = "0.0.0.0:7000"
addr = "head:7000"
kill_wait = "30s"

[[nodes]]
names = "n[1-4]"
broken = [

[auth]
method = "key"
socket = "/tmp/demo/identity.sock"
"#;

    fn read(text: &str, controllers: Option<&str>) -> anyhow::Result<Settings> {
        Settings::read(text, controllers, Path::new("spur.toml"))
    }

    #[test]
    fn only_two_tables_are_read() {
        let settings = read(LONG, None).unwrap();
        assert_eq!(settings.controllers, [HostPort { host: "head".into(), port: 7000 }]);
        let identity = settings.identity(TokenClaims::default).unwrap();
        assert!(
            matches!(identity, Identity::Socket { path, .. } if path == Path::new("/tmp/demo/identity.sock"))
        );
    }

    #[test]
    fn the_environment_names_several_controllers() {
        let settings = read(LONG, Some("a:6817,b:1")).unwrap();
        assert_eq!(settings.controllers.len(), 2);
        assert_eq!(settings.controllers[0].to_string(), "a:6817");
        assert!(read("", Some("a:1,,")).is_err());
    }

    #[test]
    fn other_clusters_have_ways_of_their_own() {
        let text = format!(
            "{LONG}\n[[clusters]]\nname = \"east\"\naddr = \"e:1\"\nsocket = \"/run/east.sock\"\n\
             [[clusters]]\nname = \"west\"\naddr = \"w:1,v:2\"\nca_file = \"/ca\"\ncontroller_names = [\"w\"]\n"
        );
        let read = |text: &str| Settings::read_clusters(text, Path::new("spur.toml"));
        let clusters = read(&text).unwrap();
        assert_eq!(clusters.own.as_deref(), Some("demo"));
        let [(east, of_east), (west, of_west)] = &clusters.others[..] else { panic!("two clusters") };
        assert_eq!((east.as_str(), west.as_str()), ("east", "west"));
        assert_eq!((of_east.socket.as_path(), of_east.controllers.len()), (Path::new("/run/east.sock"), 1));
        assert_eq!(of_west.socket, Path::new("/tmp/demo/identity.sock"), "the own daemon's");
        assert_eq!(of_west.certificates.as_ref().unwrap().names, ["w"]);
        let refused = read("[[clusters]]\nname = \"x\"\naddr = \"x:1\"\n").unwrap_err();
        assert!(
            format!("{refused:#}").contains("[[clusters]] x: say one of socket and ca_file"),
            "{refused:#}"
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let refused = format!("{:#}", read("\n\n[auth]\nmethod = \"magic\"\n", Some("a:1")).unwrap_err());
        assert!(refused.contains("spur.toml") && refused.contains("line 4"), "{refused}");
    }

    #[test]
    fn what_is_left_out_has_the_documented_default() {
        let settings = read("[auth]\n", None).unwrap();
        assert_eq!(settings.controllers, [ControllerLocal::default().listen_addr]);
        let identity = settings.identity(TokenClaims::default).unwrap();
        assert!(matches!(identity, Identity::Socket { path, .. } if path == AuthLocal::default().socket));
    }

    #[test]
    fn who_listens_everywhere_is_reached_at_home() {
        let settings =
            read("[controller]\nlisten_addr = \"0.0.0.0:1\"\n[auth]\nmethod = \"none\"\n", None).unwrap();
        assert_eq!(settings.controllers[0].to_string(), "127.0.0.1:1");
        assert!(matches!(settings.identity(TokenClaims::default).unwrap(), Identity::Unsigned(_)));
    }
}
