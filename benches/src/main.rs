//! `spur-load`: makes load for a running controller and prints how it went. `benches/run` uses it.

mod arguments;
mod beside;
mod heaviest;
mod jobs;
mod load;
mod nodes;
mod process;
#[path = "../../spurctld/tests/controller/requests.rs"]
mod requests;
mod submit;
mod target;
mod watchers;

use arguments::{Arguments, Verb};
use clap::Parser;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let target = target::Target::new(&arguments)?;
    match arguments.verb {
        Verb::Submit => submit::calls(&target, &arguments).await,
        Verb::Stream => submit::streams(&target, &arguments).await,
        Verb::Nodes => nodes::run(target, &arguments).await,
        Verb::Load => load::run(&target, &arguments).await,
        Verb::Watchers => watchers::run(&target, &arguments).await,
        Verb::Heaviest => heaviest::run(&target).await,
        Verb::Ended => submit::wait_until_ended(&target).await,
    }
}
