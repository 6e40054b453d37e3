//! Reaction to faults of the controller itself.
//!
//! The controller does not go on without one of its parts: the process ends, and the service manager starts
//! it again on the durable state.

use std::future::Future;

/// Ends the process at once, without releasing anything that is not durable.
pub(crate) fn end(what: &str) -> ! {
    tracing::error!("{what}: this controller ends at once; all that was acknowledged is on disk");
    std::process::abort()
}

/// Runs a task that the controller cannot do without: a panic in it ends the process.
pub(crate) fn vital(name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
    let task = tokio::spawn(work);
    tokio::spawn(async move {
        if task.await.is_err_and(|error| error.is_panic()) {
            end(&format!("the {name} task has panicked"));
        }
    });
}

/// Writes the message of every panic to the log.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
}

/// A point at which a test makes the controller fail: `SPUR_FAULT=PLACE=NAME` panics here for a job of that
/// name.
///
/// Release builds have no such points.
pub(crate) fn point<'a>(place: &str, names: impl IntoIterator<Item = &'a str>) {
    #[cfg(debug_assertions)]
    {
        use std::sync::LazyLock;
        static WISH: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("SPUR_FAULT").ok());
        let wished = WISH.as_ref().and_then(|wish| wish.split_once('='));
        if let Some((_, name)) = wished.filter(|(wished, _)| *wished == place) {
            assert!(
                !names.into_iter().any(|known| known == name),
                "SPUR_FAULT wants {place} to fail at {name}"
            );
        }
    }
    #[cfg(not(debug_assertions))]
    let _ = (place, names);
}
