//! Errors as they are told: once, with all their causes.

/// An error with its causes, but for those that its own text has told already.
pub fn whole(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |told, cause| match cause.to_string() {
        cause if cause.starts_with(&told) => cause,
        cause if told.contains(&cause) => told,
        cause => format!("{told}: {cause}"),
    })
}
