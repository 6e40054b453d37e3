//! `spur-load`: makes load for a running controller and says how it went. `benches/run` puts it to use.
//!
//! ```text
//! spur-load submit  --clients 64 --jobs 100000 [--hold] [--key FILE]   one job a call, each client waits for its answer
//! spur-load stream  --clients 4 --jobs 200000 [--hold] [--key FILE]    the same over streams of submissions
//! spur-load nodes   --names 'n[0-15]' [--key FILE]                     nodes that end every job at once, until killed
//! spur-load ended   --jobs 10000                                       waits until so many jobs have left the queue
//! ```
//!
//! The controller is `SPUR_CONTROLLER`, or 127.0.0.1:6817. Every job has its own script of 1 KB and environment of 4 KB.

mod arguments;
mod nodes;
mod submit;
mod target;

use arguments::Arguments;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::read(std::env::args().skip(1))?;
    let target = target::Target::new(&arguments)?;
    match arguments.verb.as_str() {
        "submit" => submit::calls(&target, &arguments).await,
        "stream" => submit::streams(&target, &arguments).await,
        "nodes" => nodes::run(&target, &arguments).await,
        "ended" => submit::wait_until_ended(&target).await,
        other => anyhow::bail!("'{other}' is none of submit, stream, nodes, ended"),
    }
}
