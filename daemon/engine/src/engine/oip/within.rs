//! How long a server is waited for: within its limit of time, and no longer than somebody waits for what it answers.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rt_core::{Instant, Span};
use tokio::time::timeout;
use weir_os::clock;

/// How often it is looked whether anybody still waits.
const LOOK: Duration = Duration::from_millis(100);

/// From when on nobody waits, in nanoseconds.
static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

/// From that instant on this process waits for no server: it ends, and what comes later is in time for nobody.
pub fn answers_end(at: Instant) {
    LAST.store(at.as_nanos(), Ordering::Relaxed);
}

/// What becomes of `asked` within `limit`.
///
/// # Errors
/// Its own, and that it takes too long.
pub(super) async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let (mut asked, until) = (pin!(asked), clock::now() + Span::from_nanos(limit.as_nanos() as u64));
    loop {
        let left = clock::duration(until.since(clock::now()));
        if let Ok(told) = timeout(left.min(LOOK), &mut asked).await {
            return told;
        }
        if left <= LOOK {
            return Err(format!("no answer came within {} ms", limit.as_millis()));
        }
        if clock::now().as_nanos() >= LAST.load(Ordering::Relaxed) {
            return Err("no answer has come, and the daemon ends".to_owned());
        }
    }
}
