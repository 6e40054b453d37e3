//! The recorder and the cutter by hand.
//!
//! ```text
//! spur-powerloss record ROOT LOG COMMAND [ARGUMENT…]   run a command that works in ROOT, an empty directory
//! spur-powerloss show ROOT LOG                         list the records
//! spur-powerloss cut ROOT LOG RECORDS DIRECTORY [SEED] make DIRECTORY what is left after so many records
//! ```

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use spur_powerloss::{Loss, Recorder, Trace};

const USAGE: &str = "usage: spur-powerloss record ROOT LOG COMMAND [ARGUMENT...]
       spur-powerloss show ROOT LOG
       spur-powerloss cut ROOT LOG RECORDS DIRECTORY [SEED]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("spur-powerloss: {error}");
            let mut source = error.source();
            while let Some(error) = source {
                eprintln!("  {error}");
                source = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<ExitCode, Box<dyn Error>> {
    match arguments {
        ["record", root, log, program, rest @ ..] => {
            let status =
                Recorder::new(Path::new(root), Path::new(log))?.command(program).args(rest).status()?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
        }
        ["show", root, log] => {
            for record in open(root, log)?.records() {
                println!("{} {:?}", record.number, record.action);
            }
        }
        ["cut", root, log, records, directory, seed @ ..] if seed.len() < 2 => {
            let trace = open(root, log)?;
            let records = records.parse::<usize>()?.min(trace.records().len());
            let loss = match seed {
                [seed, ..] => Loss::Some { seed: seed.parse()? },
                [] => Loss::Unsynced,
            };
            trace.cut(records, loss)?.write(Path::new(directory))?;
        }
        _ => return Err(USAGE.into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn open(root: &str, log: &str) -> Result<Trace, Box<dyn Error>> {
    Ok(Trace::read(&Path::new(root).canonicalize()?, Path::new(log))?)
}
