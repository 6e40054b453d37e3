//! `spur`, and by the name it is called with, every client command.

use std::process::ExitCode;

fn main() -> ExitCode {
    spur_cli::command::main()
}
