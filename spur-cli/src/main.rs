//! The program `spur`. Called by another name, it is the client command of that name.

use std::process::ExitCode;

/// The allocator jemalloc. A simulation allocates and frees some hundred small records per job, which takes
/// longer with the system's allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    spur_cli::command::main()
}
