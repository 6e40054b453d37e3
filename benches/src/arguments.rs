//! The few options there are.

use anyhow::Context;

/// What to do.
pub(crate) struct Arguments {
    pub(crate) verb: String,
    pub(crate) clients: usize,
    pub(crate) jobs: usize,
    pub(crate) hold: bool,
    pub(crate) key: Option<String>,
    pub(crate) names: String,
    pub(crate) nodes: u32,
    pub(crate) window: usize,
}

impl Arguments {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let verb = words.next().context("say what to do: submit, stream, nodes or ended")?;
        let mut arguments = Self {
            verb,
            clients: 1,
            jobs: 1000,
            hold: false,
            key: None,
            names: "n[0-15]".to_owned(),
            nodes: 1,
            window: 256,
        };
        while let Some(option) = words.next() {
            if option == "--hold" {
                arguments.hold = true;
                continue;
            }
            let value = words.next().with_context(|| format!("{option} needs a value"))?;
            let number = || value.parse::<usize>().with_context(|| format!("{option} {value}"));
            match option.as_str() {
                "--clients" => arguments.clients = number()?.max(1),
                "--jobs" => arguments.jobs = number()?,
                "--window" => arguments.window = number()?.max(1),
                "--nodes" => arguments.nodes = u32::try_from(number()?)?,
                "--key" => arguments.key = Some(value),
                "--names" => arguments.names = value,
                other => anyhow::bail!("no such option: {other}"),
            }
        }
        Ok(arguments)
    }
}
