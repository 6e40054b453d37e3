//! What happens where the controller itself is at fault.
//!
//! Nothing goes on without one of its parts: whoever serves nobody has to end, so that the service manager can start him
//! again on what is durable.

use std::future::Future;

/// Ends the process at once. Nothing that is not durable has left it.
pub(crate) fn end(what: &str) -> ! {
    tracing::error!("{what}: this controller ends at once; all that was acknowledged is on disk");
    std::process::abort()
}

/// Runs a task without which the controller is none: its panic ends the process.
pub(crate) fn vital(name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
    let task = tokio::spawn(work);
    tokio::spawn(async move {
        if task.await.is_err_and(|error| error.is_panic()) {
            end(&format!("the {name} task has panicked"));
        }
    });
}

/// Says a panic to the log, wherever it happens, as everything else is said.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
}

/// A place where a test makes the controller fail: `SPUR_FAULT=PLACE=NAME` panics there at a job of that name. There is no
/// such place in a release.
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
