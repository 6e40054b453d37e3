//! What `growth` measures, with the allocator of `spur` instead of that of `spurctld`.

#[path = "growth.rs"]
mod growth;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    growth::main();
}
