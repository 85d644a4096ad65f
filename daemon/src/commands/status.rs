//! `weir status`: what a running daemon says about itself.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;
use weir_client::blocking::Client;

use super::Socket;
use weir_os::pipe::say;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Print the daemon's JSON as it is
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let json = Client::connect(&args.socket.socket)?.status()?;
    weir_os::pipe::end_with_reader();
    let status: Value = serde_json::from_str(&json)?;
    if args.json {
        say!("{status:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    let list = |v: &Value| v.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
    let each = |v: &Value| v.as_array().cloned().unwrap_or_default();
    say!("weir {}, {} client(s)", text(&status["version"]), status["clients"]);
    for service in each(&status["services"]) {
        let mode = &service["safe_mode"];
        let simulated = if service["simulated"] == true { " (simulated)" } else { "" };
        say!(
            "\n{}: {} on {}{simulated}, {} of {} workers, {} waiting, {} running",
            text(&service["name"]),
            text(&service["model"]),
            text(&service["engine"]),
            service["workers_alive"],
            service["workers"],
            service["waiting"],
            service["running"]
        );
        let variants = each(&service["variants"]);
        if variants.len() > 1 {
            let answers: u64 = variants.iter().filter_map(|v| v["answered"].as_u64()).sum();
            let share = |v: &Value| 100.0 * v["answered"].as_f64().unwrap_or(0.0) / answers.max(1) as f64;
            let shares = variants.iter().map(|v| format!("{:.1}% by {}", share(v), text(&v["model"])));
            let shares = shares.collect::<Vec<_>>().join(", ");
            let shield = if service["shielded"] == true { "" } else { ", no shield: base only" };
            say!("  answered {shares} (select {}{shield})", text(&service["select"]));
        }
        say!("  {} {}", text(&mode["state"]), mode["text"].as_str().unwrap_or_default());
        for stream in each(&service["streams"]) {
            let missed: u64 =
                stream["missed"].as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum();
            let left =
                stream["misses_left"].as_u64().map_or_else(String::new, |n| format!(", {n} misses left"));
            say!(
                "  {:<16} {:>9} served {:>7} missed{left}  [{}] {}{}",
                text(&stream["name"]),
                stream["served"].to_string(),
                missed,
                list(&stream["constraints"]),
                list(&stream["arrivals"]),
                if stream["connected"] == true { "" } else { " (not connected)" }
            );
            if let Some(why) = stream["suspended"]["text"].as_str() {
                say!("  {:<16} suspended: {why}", "");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
