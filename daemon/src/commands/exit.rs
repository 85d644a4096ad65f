//! What the exit code says: 0 done, 1 what was asked is not so, 2 it could not be asked, 128 + n ended by signal n.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Context, Error, Result};
use planner::CertificateError;
use planner::verify::VerifyError;
use signal_hook::consts::{SIGINT, SIGTERM};

use weir_os::notice;
use weir_plan::certificate::Mismatch;

use crate::errors::whole;
use weir_plan::plan::PlanError;

/// Wrong usage or input, or the system refuses.
const TROUBLE: u8 = 2;
/// The signal that asked for the end; 0 if none did.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Set when the process is asked to end: a run then ends soon, and in order, with the signal's exit code.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: whoever sees `stop` finds the signal.
        signal_hook::flag::register_usize(signal, Arc::clone(&SIGNAL), signal.unsigned_abs() as usize)
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("signal handler")?;
    }
    Ok(stop)
}

/// Tells of errors and chooses the exit code; `written` is what became of the standard output, and `refuses` knows further
/// errors that are an answer.
pub fn conclude(
    ended: Result<ExitCode>,
    written: Result<(), &io::Error>,
    refuses: fn(&(dyn std::error::Error + 'static)) -> bool,
) -> ExitCode {
    let code = ended.unwrap_or_else(|error| {
        notice::say(whole(&error));
        ExitCode::from(if is_refusal(&error) || error.chain().any(refuses) { 1 } else { TROUBLE })
    });
    let signal = SIGNAL.load(Ordering::Relaxed) as u8;
    match written {
        Err(error) => {
            notice::say(format_args!("standard output: {error}"));
            ExitCode::from(TROUBLE)
        }
        Ok(()) if signal > 0 => ExitCode::from(128 + signal),
        Ok(()) => code,
    }
}

/// Whether everything could be read and understood, and the answer is no.
fn is_refusal(error: &Error) -> bool {
    error.chain().any(|cause| {
        let plan = cause.downcast_ref::<PlanError>();
        let certificate = cause.downcast_ref::<CertificateError>();
        plan.is_some_and(refuses)
            || certificate.is_some_and(|e| {
                matches!(e, CertificateError::Digest { .. } | CertificateError::Contents { .. })
            })
            || cause.is::<VerifyError>()
            || cause.is::<Mismatch>()
            || cause.is::<weir_client::Refusal>()
            || matches!(cause.downcast_ref(), Some(weir_client::Error::Refused(_)))
    })
}

/// Whether a plan is not to be had however it is looked at, rather than that something is missing.
fn refuses(error: &PlanError) -> bool {
    use PlanError::{Deadline, Declare, Kind, Never, Queue, Several, Stalls, Stream};
    match error {
        Several(all) => all.iter().all(refuses),
        Stalls { source, .. } | Declare { source, .. } | Kind { source, .. } => refuses(source),
        error => matches!(error, Deadline { .. } | Never { .. } | Queue { .. } | Stream { .. }),
    }
}

#[cfg(test)]
mod tests {
    use rt_core::Span;

    use super::*;

    #[test]
    fn a_plan_is_refused_where_each_of_its_errors_is_a_refusal() {
        let deadline = || {
            let [time, deadline, guard] = [9, 10, 5].map(Span::from_millis);
            PlanError::Deadline { service: "s".to_owned(), time, deadline, guard }
        };
        let stalls = PlanError::Stalls {
            source: Box::new(deadline()),
            share: 90.0,
            batch: 1,
            likely: Span::from_millis(1),
            bound: Span::from_millis(9),
        };
        let missing =
            PlanError::Batch { service: "t".to_owned(), batch: 2, profiled: 1, remedy: "list more" };
        assert!(is_refusal(&Error::from(PlanError::Several(vec![deadline(), stalls]))));
        assert!(!is_refusal(&Error::from(PlanError::Several(vec![deadline(), missing]))));
    }

    #[test]
    fn what_the_daemon_does_not_grant_is_an_answer_and_no_daemon_is_none() {
        let (code, text) = (weir_client::RefusalCode::NotAdmissible, "too much".to_owned());
        let refused = weir_client::Error::Refused(weir_client::Refusal { code, text });
        assert!(is_refusal(&Error::from(refused.clone())));
        assert!(is_refusal(&Error::from(refused).context("stream cam")));
        assert!(!is_refusal(&Error::from(weir_client::Error::Closed)));
    }
}
