//! The controller's processor time for clients that follow all jobs, beside that for the same number of full
//! lists every ten seconds.

use std::time::Duration;

use anyhow::ensure;
use spur_proto::v1;
use spur_proto::v1::controller_client::ControllerClient;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::arguments::Arguments;
use crate::process;
use crate::target::Target;

/// Time between two lists of one client.
const EVERY: Duration = Duration::from_secs(10);

/// Prints the processor time without clients, with watchers, and with lists, each over the same time.
pub(crate) async fn run(target: &Target, arguments: &Arguments) -> anyhow::Result<()> {
    let (count, length) = (arguments.clients, Duration::from_secs(arguments.seconds));
    let pid = process::pid(&mut target.connection_as(0)?).await?;
    let measure = async |what: &str| {
        let before = process::processor_time(pid)?;
        tokio::time::sleep(length).await;
        let used = (process::processor_time(pid)? - before).as_secs_f64();
        println!("{what}: {used:.2} s of processor time in {} s", length.as_secs());
        anyhow::Ok(used)
    };
    let idle = measure("no client").await?;
    let mut watchers = JoinSet::new();
    let (complete, mut completed) = tokio::sync::mpsc::channel(count);
    for _ in 0..count {
        let mut client = ControllerClient::new(target.channel_as(0).await?);
        let complete = complete.clone();
        watchers.spawn(async move {
            let filter = Some(v1::JobFilter::default());
            let request = v1::WatchClusterRequest { filter, ..v1::WatchClusterRequest::default() };
            let mut news = client.watch_cluster(request).await?.into_inner();
            let mut begins = true;
            while let Some(message) = news.message().await? {
                if message.complete && std::mem::take(&mut begins) {
                    complete.send(()).await?;
                }
            }
            anyhow::Ok(())
        });
    }
    for _ in 0..count {
        ensure!(completed.recv().await.is_some(), "a watcher has ended");
    }
    let watched = measure(&format!("{count} watchers of all jobs")).await?;
    watchers.abort_all();
    let mut lists = JoinSet::new();
    let begun = Instant::now();
    for number in 0..count {
        let mut client = ControllerClient::new(target.channel_as(0).await?);
        lists.spawn(async move {
            // The clients ask one after another, spread over the time between two lists.
            let mut next = begun + EVERY * u32::try_from(number)? / u32::try_from(count)?;
            loop {
                tokio::time::sleep_until(next).await;
                next += EVERY;
                let request = v1::ListJobsRequest::default();
                let mut pages = client.list_jobs(request).await?.into_inner();
                while pages.message().await?.is_some() {}
            }
            #[expect(unreachable_code, reason = "the type of the task")]
            anyhow::Ok(())
        });
    }
    let listed = measure(&format!("{count} x squeue every {} s", EVERY.as_secs())).await?;
    lists.abort_all();
    println!("watchers / lists, beyond no client: {:.4}", (watched - idle) / (listed - idle));
    Ok(())
}
