//! The clocks of this host: the wall's clock, by which tokens expire, and the time since boot, by which the
//! cluster's own clock runs. No other module reads them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::ClockId;
use spur_core::cluster::Cluster;
use spur_core::model::clock::{Clock, Shown};
use spur_core::text::time::Time;

/// Returns the wall's time in seconds since the Unix epoch.
pub(crate) fn wall() -> Time {
    Time(wall_ms().div_euclid(1_000))
}

/// Difference between the cluster's own clock and this host's time since boot, in milliseconds, while the
/// clock follows another host's boot. `i64::MIN` if no difference is known.
static FOLLOWED_BASE_MS: AtomicI64 = AtomicI64::new(i64::MIN);

/// Sets the present reading of the cluster's own clock, in milliseconds, for the time in which another
/// host keeps that clock.
pub(crate) fn follow(own_ms: i64) {
    FOLLOWED_BASE_MS.store(own_ms.saturating_sub(since_boot_ms()), Ordering::Relaxed);
}

/// Returns the present reading of an own clock, in milliseconds.
fn own_ms(clock: &Clock) -> i64 {
    let followed = FOLLOWED_BASE_MS.load(Ordering::Relaxed);
    if followed == i64::MIN || *clock.boot == **own_boot() {
        return clock.own_ms(since_boot_ms());
    }
    followed.saturating_add(since_boot_ms())
}

/// The time by the cluster's own clock.
pub(crate) fn now(cluster: &Cluster) -> Time {
    now_of(cluster.clock())
}

/// Returns the time that `clock` shows, in seconds.
pub(crate) fn now_of(clock: &Clock) -> Time {
    Time(own_ms(clock).div_euclid(1_000))
}

/// Returns the time of the cluster's own clock, in milliseconds.
pub(crate) fn now_ms(cluster: &Cluster) -> i64 {
    own_ms(cluster.clock())
}

/// Returns the duration until `clock` shows `at`; zero if that time has passed.
pub(crate) fn until(clock: &Clock, at: Time) -> Duration {
    let left = at.0.saturating_mul(1_000).saturating_sub(own_ms(clock));
    Duration::from_millis(u64::try_from(left).unwrap_or(0))
}

/// Returns the readings of this host's clocks, with the boot that they belong to.
pub(crate) fn shown() -> Shown {
    Shown { boot: Arc::clone(own_boot()), since_boot_ms: since_boot_ms(), wall_ms: wall_ms() }
}

/// Returns the id of this host's boot.
fn own_boot() -> &'static Arc<str> {
    static BOOT: OnceLock<Arc<str>> = OnceLock::new();
    BOOT.get_or_init(|| {
        // Where the kernel does not say it, every start counts as one after another boot.
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        id.map_or_else(|_| Arc::from(format!("{}", std::process::id())), |id| Arc::from(id.trim()))
    })
}

/// Returns the wall's time in milliseconds since the Unix epoch.
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the milliseconds since this host was booted, including suspended time.
pub(crate) fn since_boot_ms() -> i64 {
    let since = rustix::time::clock_gettime(ClockId::Boottime);
    since.tv_sec * 1_000 + since.tv_nsec / 1_000_000
}
