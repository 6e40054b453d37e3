//! `sacctmgr modify job`: the jobs that are meant, and the values that are set.

use super::{Word, bad_value, refused, unknown_condition, unknown_option};
use crate::id::JobId;
use crate::model::note::JobNote;
use crate::text::exit::ExitCode;

/// Reads the numbers of jobs; `None` if another cluster than this one is named.
///
/// # Errors
/// Slurm's sentence on an unknown condition, or a value that names no job.
pub fn jobs(cluster: &str, words: &[Word]) -> Result<Option<Vec<JobId>>, String> {
    let (mut found, mut elsewhere) = (Vec::new(), false);
    for word in words {
        match () {
            () if word.key.is_empty() || word.is("JobIds", 1) => {
                for name in word.names() {
                    found.push(name.parse().map(JobId).map_err(|_| format!(" Invalid job id: {name}"))?);
                }
            }
            () if word.is("Clusters", 1) => {
                elsewhere |= word.names().all(|name| !name.eq_ignore_ascii_case(cluster));
            }
            () => return Err(unknown_condition(word)),
        }
    }
    Ok((!elsewhere).then_some(found))
}

/// Reads the values that are set.
///
/// # Errors
/// Slurm's sentence on an unknown key or a bad value.
pub fn note(words: &[Word]) -> Result<JobNote, String> {
    let mut note = JobNote::default();
    let read = read(words, &mut note);
    // Slurm prints both sentences.
    let nothing = if note.is_empty() { " You didn't give me anything to set\n" } else { "" };
    read.map_err(|text| format!("{nothing}{text}"))?;
    Ok(note)
}

fn read(words: &[Word], note: &mut JobNote) -> Result<(), String> {
    for word in words {
        let text = || Some(word.value.as_str().into());
        match () {
            () if word.is("AdminComment", 2) => note.admin_comment = text(),
            () if word.is("Comment", 2) => note.comment = text(),
            () if word.is("DerivedExitCode", 12) || word.is("DerivedEC", 9) => {
                let code = word.value.parse().map(of_status);
                let sentence = || format!("Invalid value for DerivedExitCode ({})", word.value);
                note.derived_exit = Some(code.map_err(|_| bad_value(&sentence(), word))?);
            }
            () if word.is("Extra", 1) || word.is("SystemComment", 1) || word.is("WCKey", 1) => {
                return Err(refused(word, "AdminComment, Comment and DerivedExitCode can be changed"));
            }
            () => return Err(unknown_option(word)),
        }
    }
    Ok(())
}

/// The exit code that a number stands for. Slurm reads the number as the status of wait(2): below 128 it is a
/// signal.
fn of_status(status: u16) -> ExitCode {
    let [code, signal] = status.to_be_bytes();
    ExitCode { code, signal: signal & 0x7f }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(texts: &[&str]) -> Vec<Word> {
        texts.iter().map(|text| Word::read(text)).collect()
    }

    #[test]
    fn jobs_and_values_are_read() {
        assert_eq!(jobs("c", &words(&["jobid=3,4", "cluster=c"])), Ok(Some(vec![JobId(3), JobId(4)])));
        assert_eq!(jobs("c", &words(&["jobid=3", "cluster=d"])), Ok(None));
        assert!(jobs("c", &words(&["jobid=x"])).is_err() && jobs("c", &words(&["user=x"])).is_err());
        let read = note(&words(&["admincomment='a b'", "derivedexitcode=3"])).unwrap();
        assert_eq!(
            (read.admin_comment.as_deref(), read.derived_exit),
            (Some("a b"), Some(ExitCode::signaled(3)))
        );
        for wrong in ["derivedexitcode=x", "wckey=x", "foo=1"] {
            assert!(note(&words(&[wrong])).is_err(), "{wrong}");
        }
    }
}
