//! Reads the output of discovery tools from files, commands and topograph's service.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Maximum time for topograph, which combines successive requests and queries clouds for every node.
const PATIENCE: Duration = Duration::from_secs(600);
/// Pauses between requests for topograph's result: the first, and the maximum.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// Port of topograph.
const PORT: u16 = 49021;
/// Path of topograph's results.
const RESULT: &str = "/v1/topology";

/// Returns the text of a file.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn file(path: &str) -> anyhow::Result<String> {
    let text = fs::read(path).with_context(|| format!("cannot read {path}"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the output of a command.
///
/// # Errors
/// A command that cannot be run, or fails.
pub(super) fn output(command: &str) -> anyhow::Result<String> {
    let ended = Command::new("sh").args(["-c", command]).output().context("cannot run sh")?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        bail!("`{command}` failed ({}): {}", ended.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}

/// Returns the result of topograph. An address without a path starts a discovery, whose result has the format
/// of Slurm's files. An address with the path of a result returns that result.
///
/// # Errors
/// An invalid address, no answer, a failure of topograph, or no result within ten minutes.
pub(super) async fn topograph(url: &str) -> anyhow::Result<String> {
    let uri: Uri = url.parse().with_context(|| format!("{url} is not an address"))?;
    if uri.scheme_str() != Some("http") {
        bail!("{url}: only http:// is read; save the answer with `curl` and name the file instead");
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let path = match path.as_str() {
        "/" => {
            let body = r#"{"engine":{"name":"slurm"}}"#;
            match ask(&uri, Method::POST, "/v1/generate", body).await? {
                (StatusCode::ACCEPTED, id) => format!("{RESULT}?uid={}", id.trim()),
                (status, said) => bail!("{url}: topograph answers {status}: {}", said.trim()),
            }
        }
        _ => path,
    };
    let (until, mut pause) = (Instant::now() + PATIENCE, PAUSES[0]);
    loop {
        match ask(&uri, Method::GET, &path, "").await? {
            (StatusCode::OK, text) if text.trim() == "OK" => bail!(
                "{url}: topograph wrote its result to a file of its own; take `topologyConfigPath` out of the request, or name that file"
            ),
            (StatusCode::OK, text) => return Ok(text),
            (StatusCode::ACCEPTED, _) if Instant::now() < until => tokio::time::sleep(pause).await,
            (StatusCode::ACCEPTED, _) => {
                bail!("{url}: topograph has no result after {} s", PATIENCE.as_secs())
            }
            (status, said) => bail!("{url}: topograph answers {status}: {}", said.trim()),
        }
        pause = (pause * 2).min(PAUSES[1]);
    }
}

async fn ask(
    uri: &Uri,
    method: Method,
    path: &str,
    body: &'static str,
) -> anyhow::Result<(StatusCode, String)> {
    let host = uri.host().context("the address names no host")?;
    let port = uri.port_u16().unwrap_or(PORT);
    let address = format!("{host}:{port}");
    let stream = TcpStream::connect(&address).await.with_context(|| format!("cannot reach {address}"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, &address)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from_static(body.as_bytes())))?;
    let answer = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        anyhow::Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    let (answer, _) = tokio::join!(answer, connection);
    answer.with_context(|| format!("{address} gives no answer to {path}"))
}
