//! Panics: told without waiting for whoever reads standard error, and those that are caught by whoever catches them alone.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Mutex;
use std::thread;

use rt_core::Span;
use tracing::error;

use crate::clock;
use crate::limit::Limit;
use crate::notice;

/// So many lines a second at most.
const LINES: usize = 10;

thread_local! {
    /// Whether what panics on this thread is told by who called it.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// What `step` returns, or the message of its panic, which nobody else tells once [`tell`] was called.
///
/// # Errors
/// If it panics.
pub fn caught<T>(step: impl FnOnce() -> T) -> Result<T, String> {
    let outer = CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(step));
    CAUGHT.set(outer);
    result.map_err(|panic| {
        let told = panic.downcast_ref::<String>().map(String::as_str);
        told.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word").to_owned()
    })
}

/// From now on a panic is told as an event of the log while a thread of its own writes that ([`notice::Notices`]), else on standard error
/// as ever; nothing is written of one that is [`caught`].
pub fn tell() {
    let otherwise = take_hook();
    let limit = Mutex::new(Limit::new(LINES, Span::from_millis(1_000)));
    set_hook(Box::new(move |panic| {
        if CAUGHT.get() {
            return;
        }
        if !notice::is_queued() {
            return otherwise(panic);
        }
        // Held by another that panics: one line less.
        let admitted = limit.try_lock().ok().and_then(|mut limit| limit.admit(clock::now()));
        if let Some(untold) = admitted {
            let thread = thread::current();
            let (name, text) = (thread.name().unwrap_or("without a name").to_owned(), panic.to_string());
            let more = if untold > 0 { format!(" (and {untold} more)") } else { String::new() };
            error!("thread {name} {}{more}", text.replace('\n', " "));
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_that_is_caught_becomes_an_error() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught::<()>(|| panic!("malformed")), Err("malformed".to_owned()));
        assert_eq!(caught::<()>(|| panic!("{}", 7)), Err("7".to_owned()));
        assert_eq!(caught(|| caught::<()>(|| panic!("inside"))), Ok(Err("inside".to_owned())));
        assert!(!CAUGHT.get());
    }
}
