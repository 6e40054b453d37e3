//! spurstepd: runs one step on one node. spurd starts it and hands it the order on standard input.

use std::process::ExitCode;

fn main() -> ExitCode {
    spurd::step::shim::main()
}
