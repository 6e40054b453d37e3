//! Databases on a server that requires TLS, and a password or a certificate.

use std::error::Error;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

use spur_core::model::config::{DatabaseUrl, PostgresState, State};
use spur_core::text::time::Seconds;
use spur_tests::postgres::{Extra, Postgres};
use spurctld::store::{Journal, Place};

use crate::fixture::{batch, directory};

const PASSWORD: &str = "the-secret-of-a-test";

/// Rules of `pg_hba.conf`: connections by TCP use TLS, with a certificate for the database `certified` and
/// a password for the others.
const ACCESS: &str = "local all all trust
hostssl certified all 127.0.0.1/32 cert
hostssl all all 127.0.0.1/32 scram-sha-256
";

/// A certificate or key of `tests/data/tls`. `database.pem` is of the server at 127.0.0.1,
/// `database-user.pem` of the user `spur`; both are of `database-authority.pem`.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/tls").join(name)
}

/// A server with the databases `plain` and `certified`, and its port; `None` without PostgreSQL.
fn server() -> Option<(Postgres, u16)> {
    // The port is assumed to stay free until the server binds it.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap().port();
    let settings = "ssl = on\nssl_cert_file = 'database.pem'\nssl_key_file = 'database.key'\n\
                    ssl_ca_file = 'database-authority.pem'\n";
    let files = ["database.pem", "database.key", "database-authority.pem"].map(file).into();
    let (settings, access) = (settings.to_owned(), ACCESS.to_owned());
    let server = Postgres::start_with(&Extra { port: Some(port), settings, access, files })?;
    server.sql("postgres", &format!("ALTER ROLE spur PASSWORD '{PASSWORD}'"));
    for database in ["plain", "certified"] {
        server.create(database);
    }
    Some((server, port))
}

/// Writes a password into a file in a directory of its own. Returns the path.
fn password_file(name: &str, password: &str) -> PathBuf {
    let path = directory(name).join("password");
    fs::write(&path, format!("{password}\n")).unwrap();
    path
}

fn place(url: &str, password_file: Option<PathBuf>) -> Place {
    let urls = vec![DatabaseUrl::parse(url).unwrap()];
    Place::of(&State::Postgres(PostgresState { urls, password_file, lease: Seconds(1) }), "127.0.0.1:6817")
        .unwrap()
}

/// Returns the text of an error with all of its causes.
fn causes(error: &dyn Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        said = format!("{said}: {cause}");
        source = cause.source();
    }
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_and_its_user_prove_who_they_are() {
    let Some((_server, port)) = server() else { return };
    let (ca, other) = (file("database-authority.pem"), file("authority.pem"));
    let (ca, other) = (ca.display(), other.display());
    let (pem, key) = (file("database-user.pem"), file("database-user.key"));
    let certified = format!("sslcert={}&sslkey={}", pem.display(), key.display());
    let verified = format!("sslmode=verify-full&sslrootcert={ca}");
    let (good, wrong) =
        (password_file("password-good", PASSWORD), password_file("password-wrong", "guessed"));
    let lost = directory("password-lost").join("password");
    let at =
        |host: &str, database: &str, more: &str| format!("postgres://spur@{host}:{port}/{database}?{more}");
    // Each case: a URL and a password file, with the expected result: none, or a part of the refusal.
    let cases = [
        (at("127.0.0.1", "plain", &verified), Some(&good), None),
        (at("127.0.0.1", "certified", &format!("{verified}&{certified}")), None, None),
        (
            at("127.0.0.1", "plain", &format!("sslmode=verify-full&sslrootcert={other}")),
            Some(&good),
            Some("UnknownIssuer"),
        ),
        (at("localhost", "plain", &verified), Some(&good), Some("not valid for name")),
        (at("127.0.0.1", "plain", "application_name=x"), Some(&good), Some("no encryption")),
        (at("127.0.0.1", "plain", &verified), Some(&wrong), Some("password authentication failed")),
        (at("127.0.0.1", "plain", &verified), None, Some("password")),
        (at("127.0.0.1", "plain", &verified), Some(&lost), Some("password-lost/password")),
        (at("127.0.0.1", "certified", &verified), Some(&good), Some("certificate")),
    ];
    for (url, password, refused) in cases {
        match (Journal::open(&place(&url, password.cloned())).await, refused) {
            (Ok((journal, _)), None) => journal.close().await,
            (Ok(_), Some(_)) => panic!("{url} is accepted"),
            (Err(error), refused) => {
                let said = causes(&error);
                assert!(refused.is_some_and(|part| said.contains(part)), "{url}: {said}");
                assert!(!said.contains(PASSWORD) && !said.contains("guessed"), "{url}: {said}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_may_change_while_the_controller_runs() {
    let Some((server, port)) = server() else { return };
    let path = password_file("password-changes", PASSWORD);
    let ca = file("database-authority.pem");
    let url =
        format!("postgres://spur@127.0.0.1:{port}/plain?sslmode=verify-full&sslrootcert={}", ca.display());
    let (journal, _) = Journal::open(&place(&url, Some(path.clone()))).await.unwrap();
    journal.commit(batch(&journal, 1, 3)).await.unwrap();
    server.sql("plain", "ALTER ROLE spur PASSWORD 'another-secret'");
    fs::write(&path, "another-secret\n").unwrap();
    server.sql(
        "plain",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'spurctld'",
    );
    assert_eq!(journal.commit(batch(&journal, 4, 3)).await.unwrap().seq, 6);
    assert_eq!(journal.entries(0).await.unwrap().len(), 6);
    journal.close().await;
}
