//! `spur-load`: makes load for a running controller and says how it went. `benches/run` puts it to use.
//!
//! ```text
//! spur-load submit  --clients 64 --jobs 100000 [--hold] [--key FILE]   one job a call, each client waits for its answer
//! spur-load stream  --clients 4 --jobs 200000 [--hold] [--key FILE]    the same over streams of submissions
//! spur-load nodes   --names 'n[0-15]' [--keep] [--key FILE]            nodes that end every job at once, or never, until killed
//! spur-load ended   --jobs 10000                                       waits until so many jobs have left the queue
//! ```
//!
//! `submit` can tell the calls apart that were answered while something else went on in the controller: `--beside
//! snapshot:DIRECTORY` while a snapshot was written there, `--beside plan:PID` while the planner worked. With `--free N`
//! one job in N is not held, for half of the time: that is what makes it plan.
//!
//! The controller is `SPUR_CONTROLLER`, or 127.0.0.1:6817. Every job has its own script of 1 KB and environment of 4 KB.

mod arguments;
mod beside;
mod jobs;
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
