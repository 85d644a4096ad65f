pub(super) fn command(name: &str) -> std::process::Command {
    std::process::Command::new(name)
}
