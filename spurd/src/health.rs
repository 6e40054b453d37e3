//! The site's program that looks after the node: it finds out whether something is wrong, and drains the node by `scontrol`
//! itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::prolog::SiteProgram;
use crate::settings::Settings;

/// How long it may take, as with Slurm.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the program once, if there is one.
async fn check(settings: &Settings) {
    if settings.agent.health_check_program.is_none() {
        return;
    }
    let mut environment = vec![("SLURMD_NODENAME".to_owned(), settings.name.clone())];
    let config = settings.config.iter().map(|path| ("SPUR_CONF".to_owned(), path.display().to_string()));
    environment.extend(config);
    // It may call commands, and these are where spurd's own environment says.
    environment.extend(
        ["PATH", "HOME"].into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))),
    );
    let program = SiteProgram {
        what: "health_check_program",
        path: settings.agent.health_check_program.clone(),
        environment,
        limit: LIMIT,
    };
    if let Err(why) = program.run().await {
        tracing::warn!("{why}");
    }
}

/// Runs it once now, and then as often as the configuration says.
pub(crate) async fn look_after(settings: watch::Receiver<Arc<Settings>>) {
    let now = Arc::clone(&settings.borrow());
    check(&now).await;
    tokio::spawn(keep_checking(settings));
}

async fn keep_checking(mut settings: watch::Receiver<Arc<Settings>>) {
    loop {
        let now = Arc::clone(&settings.borrow_and_update());
        let every = Duration::from_secs(now.agent.health_check_interval.0.max(1));
        tokio::select! {
            changed = settings.changed() => if changed.is_err() {
                return;
            },
            () = tokio::time::sleep(every) => check(&now).await,
        }
    }
}
