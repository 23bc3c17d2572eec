//! What the commands that look after a data directory have in common.

use super::{complain, exit};
use crate::config::{LimitOverride, Overrides, Settings, process_env};
use crate::upkeep::UpkeepError;
use crate::upkeep::verify::Step;
use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Which data directory, and how to tell about it.
#[derive(Debug, Args)]
pub(super) struct Directory {
    /// Directory of the database [default: as `bowline serve` has it]
    #[arg(long, value_name = "DIR", env = "BOWLINE_DATA")]
    data: Option<PathBuf>,

    /// Settings file [default: $XDG_CONFIG_HOME/bowline/config.toml, if there is one]
    #[arg(long, value_name = "FILE", env = "BOWLINE_CONFIG")]
    config: Option<PathBuf>,

    /// Report as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Directory {
    /// The settings that apply to it.
    pub(super) fn settings(&self, limits: Vec<LimitOverride>) -> Result<Settings, ExitCode> {
        let overrides = Overrides {
            data: self.data.clone(),
            config: self.config.clone(),
            limits,
            ..Overrides::default()
        };
        Settings::load(overrides, process_env).map_err(|error| complain(exit::USAGE, error))
    }
}

/// Why the work could not be done.
pub(super) fn failed(error: &UpkeepError) -> ExitCode {
    let code = if error.is_held() { exit::HELD } else { exit::FAILED };
    complain(code, error)
}

/// A progress bar on a terminal, and nothing elsewhere.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new() -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }

    pub(super) fn tell(&self, step: Step) {
        match step {
            Step::Check(name) => self.0.set_message(name),
            Step::Replayed(done, all) => {
                if self.0.length() != Some(all) {
                    self.0.set_length(all);
                    // The template is ours and known to be good; the default would do as well.
                    if let Ok(style) = ProgressStyle::with_template(
                        "{msg} [{bar:30}] {human_pos} of {human_len} ops, {eta} left",
                    ) {
                        self.0.set_style(style.progress_chars("=> "));
                    }
                }
                // Drawing is throttled by the bar itself; asking it a million times is not free.
                if done % 1024 == 0 || done == all {
                    self.0.set_position(done);
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A number for people.
pub(super) fn count(number: u64) -> HumanCount {
    HumanCount(number)
}
