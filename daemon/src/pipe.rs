//! Standard output, for programs behind `| head`: a reader that has seen enough ends them quietly.

/// From here on a closed pipe ends the process, as it ends any other Unix filter. Not for programs that write to
/// sockets afterwards: there a closed end is an error to be told.
#[allow(unsafe_code)]
pub(crate) fn end_with_reader() {
    // SAFETY: `SIG_DFL` is a valid disposition of `SIGPIPE`, and no handler of ours is replaced by it.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
