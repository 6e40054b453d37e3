//! The few options there are.

use anyhow::Context;

use crate::beside::What;

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
    /// One job in so many may start at once, the others are held; 0 for none.
    pub(crate) free: usize,
    /// Nodes never end what they run.
    pub(crate) keep: bool,
    /// What to look for beside the load.
    pub(crate) beside: Option<What>,
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
            free: 0,
            keep: false,
            beside: None,
        };
        while let Some(option) = words.next() {
            match option.as_str() {
                "--hold" => arguments.hold = true,
                "--keep" => arguments.keep = true,
                _ => {
                    let value = words.next().with_context(|| format!("{option} needs a value"))?;
                    arguments.set(&option, value)?;
                }
            }
        }
        Ok(arguments)
    }

    fn set(&mut self, option: &str, value: String) -> anyhow::Result<()> {
        let number = || value.parse::<usize>().with_context(|| format!("{option} {value}"));
        match option {
            "--clients" => self.clients = number()?.max(1),
            "--jobs" => self.jobs = number()?,
            "--window" => self.window = number()?.max(1),
            "--nodes" => self.nodes = u32::try_from(number()?)?,
            "--free" => self.free = number()?,
            "--beside" => self.beside = Some(value.parse()?),
            "--key" => self.key = Some(value),
            "--names" => self.names = value,
            other => anyhow::bail!("no such option: {other}"),
        }
        Ok(())
    }
}
