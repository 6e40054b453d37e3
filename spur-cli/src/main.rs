//! `spur`, and by the name it is called with, every client command.

use std::process::ExitCode;

/// A simulation makes and forgets some hundred small records for each job; this allocator is faster at that than the
/// system's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    spur_cli::command::main()
}
