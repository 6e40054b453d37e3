//! Batch scripts as people write them, in `tests/data/batch`: all of their headers are taken.

use std::fs;
use std::path::Path;

use spur_cli::options::submission::Submission;
use spur_cli::place::Here;

/// How many there are at least.
const SCRIPTS: usize = 50;

#[test]
fn every_header_is_taken() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/batch");
    let (mut taken, mut refused) = (0, Vec::new());
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let script = fs::read_to_string(&path).unwrap();
        let components = Submission::parse(&[], &|_| None, Some(&script));
        let specs = components
            .and_then(|all| all.into_iter().map(|one| one.into_spec(&Here)).collect::<Result<Vec<_>, _>>());
        match specs {
            Ok(_) => taken += 1,
            Err(error) => refused.push(format!("{}: {error}", path.display())),
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(taken >= SCRIPTS, "only {taken} scripts were found");
}
