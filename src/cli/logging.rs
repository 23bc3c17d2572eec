//! Logs, on stderr: for people by default, as JSON on request.

use crate::config::LogFormat;
use std::io::{self, IsTerminal};
use tracing_subscriber::EnvFilter;

/// Starts logging, panics included.
pub(super) fn start(filter: &str, format: LogFormat) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("setting log: {error}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match format {
        LogFormat::Human => {
            builder.with_target(false).with_ansi(io::stderr().is_terminal()).init();
        }
        LogFormat::Json => builder.json().init(),
    }
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a panic")));
    Ok(())
}
